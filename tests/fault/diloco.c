/* DiLoCo: one worker dies, on its own between synchronizations or during one. All others get an
 * error that names it when they synchronize, and nothing hangs. */
#include "fault/notes.h"

#include <signal.h>
#include <sys/time.h>

#include "job_fixture.h"
#include "tensor/scope.h"

enum { RANKS = 3, EVERY = 4, STEPS = 12, WIDTH = 64, LATE = 2, VICTIM = 1 };

typedef struct trial {
    notes *notes;
    int dies_at; /* the step, from 0; the last one before a meeting: in the meeting */
    bool recorded;
} trial;

typedef struct job {
    const trial *trial;
    int rank, step;
    choir_module *net;
    choir_optim *optim;
} job;

static bool meets_at(int step)
{
    return (step + 1) % EVERY == 0;
}

/* The last rank is late for the meeting in which the victim, who is there, dies. */
static void strike(const job *j)
{
    if (j->step != j->trial->dies_at)
        return;
    if (meets_at(j->step) && j->rank == LATE)
        nap(0.5);
    if (j->rank != VICTIM)
        return;
    if (meets_at(j->step))
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {.tv_usec = 200000}}, NULL);
    else
        raise(SIGKILL);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(8, WIDTH), 0.5);
    choir_status status = choir_backward(choir_mse_loss(choir_forward(j->net, x), x));
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static choir_status train(job *j, choir_scope *run)
{
    choir_status status = choir_scope_status(run);
    for (j->step = 0; j->step < STEPS && status == CHOIR_OK; j->step++) {
        strike(j);
        status = run_step(run, j->trial->recorded, j->step, body, j);
        if (status == CHOIR_OK)
            status = choir_device_sync(run->device);
    }
    return status;
}

static int rank_main(int rank, int world, void *arg)
{
    job j = {.trial = arg, .rank = rank};
    notes *n = j.trial->notes;
    choir_env env;
    signal(SIGTERM, SIG_IGN); /* of choir_spawn, which would end the others at once */
    note_self(n, rank);
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 3);
    choir_diloco_opts opts = choir_diloco_defaults();
    opts.every = EVERY;
    j.net = choir_diloco(run, choir_nn_linear(run, WIDTH, WIDTH), env.group, opts);
    j.optim = choir_adamw(run, j.net, choir_adamw_defaults());
    note(n, rank, train(&j, run));
    choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void check(int dies_at, bool recorded)
{
    trial t = {.notes = new_notes(), .dies_at = dies_at, .recorded = recorded};
    assert_int_equal(choir_spawn(RANKS, rank_main, &t), CHOIR_ERR_PEER_LOST);
    assert_others_name(t.notes, RANKS, VICTIM);
    munmap(t.notes, sizeof *t.notes);
}

static void between_meetings(void **state)
{
    check(EVERY, false);
    check(EVERY + 1, true);
}

static void in_a_meeting(void **state)
{
    check(EVERY - 1, false);
    check(2 * EVERY - 1, true);
}

/* Runs the test over UCX, as between machines. */
static void over_ucx(void **state)
{
    use_ucx();
    check(EVERY, true);
    check(2 * EVERY - 1, true);
    unsetenv("CHOIR_BACKEND");
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "3", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_meetings),
        cmocka_unit_test(in_a_meeting),
        cmocka_unit_test(over_ucx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
