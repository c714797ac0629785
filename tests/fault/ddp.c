/* A rank dies in a hook; before its first step, in which the others allocate the memory of
 * their gradients together; in a step that others shadow; or while it shadows theirs. The
 * others report an error that names it. */
#include "fault/notes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <choir/choir.h>

#include "multi/ranks.h"

typedef enum moment { IN_A_HOOK, AT_FIRST, IN_A_STEP, IN_THE_SHADOW } moment;

typedef struct death {
    notes *notes;
    moment when;
    int victim;
} death;

static choir_status die(const void *args)
{
    const int *victim = args;
    if (*victim)
        kill(getpid(), SIGKILL);
    return CHOIR_OK;
}

static choir_status deadly(const choir_ddp_bucket *b, void *arg)
{
    const death *d = arg;
    choir_work work;
    int victim = d->when == IN_A_HOOK && choir_group_rank(b->group) == d->victim;
    choir_status status = choir_group_call(b->group, die, &victim, sizeof victim, &work);
    return status ? status : choir_ddp_all_reduce(b, NULL);
}

static choir_status step(choir_scope *run, choir_module *net, choir_optim *opt, int number)
{
    choir_scope *s = choir_step_open(run, (uint64_t)number);
    choir_tensor *y = choir_forward(net, choir_full(s, CHOIR_F32, choir_dims(2, 8), 1));
    choir_status status = choir_backward(choir_mean(y));
    if (status == CHOIR_OK)
        status = choir_optim_step(opt);
    choir_status closed = choir_scope_close(s);
    if (status == CHOIR_OK && closed == CHOIR_OK)
        status = choir_device_sync(choir_device_find("cpu:0"));
    return status ? status : closed;
}

static int dying(int rank, int world, void *arg)
{
    death *d = arg;
    choir_env env;
    note_self(d->notes, rank);
    choir_check(choir_env_init(&env));
    env.device = choir_device_find("cpu:0");
    choir_scope *run = choir_run_open(&env, 1);
    choir_module *net =
        choir_ddp(run, choir_nn_linear(run, 8, 8), env.group, choir_ddp_defaults());
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    CHECK_OK(choir_ddp_set_hook(net, deadly, d));
    if (d->when != AT_FIRST) /* its first call comes before the one that is meant */
        CHECK_OK(choir_ddp_join_begin(net, choir_ddp_join_defaults()));
    choir_status status = CHOIR_OK;
    int steps = d->when == IN_THE_SHADOW ? (rank == d->victim ? 1 : 1000000)
                                         : (rank == d->victim ? 1000000 : 1);
    if (d->when == IN_THE_SHADOW && rank == d->victim && fork() == 0) {
        nap(0.3); /* by then it is there */
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    for (int i = 0; i < steps && status == CHOIR_OK; i++) {
        if (rank == d->victim && i == (d->when == AT_FIRST ? 0 : 3) && d->when != IN_A_HOOK)
            kill(getpid(), SIGKILL);
        status = step(run, net, opt, i);
    }
    if (status == CHOIR_OK && d->when != AT_FIRST)
        status = choir_ddp_join_end(net);
    note(d->notes, rank, status);
    (void)choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void dies(moment when, int world, int victim)
{
    char who[64];
    death d = {new_notes(), when, victim};
    assert_int_equal(choir_spawn(world, dying, &d), CHOIR_ERR_PEER_LOST);
    snprintf(
        who, sizeof who, "rank %d (pid %d) died during", victim, (int)d.notes->pid[victim]);
    for (int r = 0; r < world; r++) {
        if (r == victim)
            continue;
        assert_int_equal(d.notes->status[r], CHOIR_ERR_PEER_LOST);
        if (!strstr(d.notes->message[r], who))
            fail_msg("moment %d, rank %d: '%s'", (int)when, r, d.notes->message[r]);
    }
    munmap(d.notes, sizeof *d.notes);
}

static void test_hook(void **state)
{
    dies(IN_A_HOOK, 2, 1);
    dies(IN_A_HOOK, 3, 0);
}

static void test_step(void **state)
{
    dies(IN_A_STEP, 2, 1);
    dies(IN_A_STEP, 3, 0);
}

static void test_first(void **state)
{
    dies(AT_FIRST, 2, 1);
    dies(AT_FIRST, 3, 0);
}

static void test_shadow(void **state)
{
    dies(IN_THE_SHADOW, 2, 1);
    dies(IN_THE_SHADOW, 3, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hook),
        cmocka_unit_test(test_first), cmocka_unit_test(test_step),
        cmocka_unit_test(test_shadow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
