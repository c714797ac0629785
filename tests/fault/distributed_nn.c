/* Collectives with gradients: a rank dies between forward and backward, or in between two
 * backwards' collectives. All others get an error that names it, and nothing hangs. */
#include "fault/notes.h"

#include <signal.h>

#include <choir/choir.h>

enum { RANKS = 3, STEPS = 6, VICTIM = 1 };

typedef struct trial {
    notes *notes;
    int dies_in;  /* the step in which the victim dies, after its forward */
    bool forward; /* before it, instead */
} trial;

static choir_status body(choir_scope *s, const trial *t, choir_group *group, int step)
{
    bool dies = choir_group_rank(group) == VICTIM && step == t->dies_in;
    choir_tensor *x = choir_require_grad(choir_full(s, CHOIR_F32, choir_dims(6, 4), 0.5));
    choir_tensor *sum = choir_nn_all_reduce(x, group, CHOIR_SUM);
    if (dies && t->forward)
        raise(SIGKILL);
    choir_tensor *all = choir_nn_all_gather(choir_tanh(sum), group, 0);
    choir_status status = choir_device_sync(choir_tensor_device(all));
    if (dies)
        raise(SIGKILL);
    if (status == CHOIR_OK)
        status = choir_backward(choir_mean(all));
    float g[24];
    return status == CHOIR_OK ? choir_read(choir_grad(x), g, sizeof g) : status;
}

static int rank_main(int rank, int world, void *arg)
{
    const trial *t = arg;
    choir_env env;
    signal(SIGTERM, SIG_IGN); /* of choir_spawn, which would end the others at once */
    note_self(t->notes, rank);
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 3);
    choir_status status = CHOIR_OK;
    for (int step = 0; step < STEPS && status == CHOIR_OK; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        status = body(s, t, env.group, step);
        note(t->notes, rank, status);
        choir_scope_close(s);
    }
    choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void check(int dies_in, bool forward)
{
    trial t = {.notes = new_notes(), .dies_in = dies_in, .forward = forward};
    assert_int_equal(choir_spawn(RANKS, rank_main, &t), CHOIR_ERR_PEER_LOST);
    assert_others_name(t.notes, RANKS, VICTIM);
    munmap(t.notes, sizeof *t.notes);
}

static void in_forward(void **state)
{
    check(2, true);
}

static void before_backward(void **state)
{
    check(2, false);
}

/* Runs the test over UCX, as between machines. */
static void over_ucx(void **state)
{
    use_ucx();
    check(2, true);
    check(2, false);
    unsetenv("CHOIR_BACKEND");
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "3", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_forward),
        cmocka_unit_test(before_backward),
        cmocka_unit_test(over_ucx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
