/* A pipeline over ranks: one rank dies, or fails in its own stage. All others end soon,
 * anywhere in the pipeline, with an error that names the rank and its stage; nothing hangs. */
#include "fault/notes.h"

#include <signal.h>

#include <choir/choir.h>

enum { RANKS = 4, STEPS = 12, MICROS = 4, WIDTH = 64, AFTER = 4 };

typedef enum how {
    KILLED,   /* a process is gone */
    NO_LOSS,  /* the program fails, in plain code */
    BAD_CLASS /* a kernel fails, on the device of the last stage */
} how;

typedef struct trial {
    notes *notes;
    how blow;
    int victim;
    bool recorded;
    const char *backend;
    bool mesh; /* two replicas of two stages */
} trial;

typedef struct job {
    const trial *trial;
    int rank, step;
    choir_module *pipe;
    choir_optim *optim;
    choir_tensor *losses[MICROS];
} job;

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    const trial *t = j->trial;
    bool now = j->step >= AFTER;
    if (now && t->blow == KILLED && j->rank == t->victim) {
        t->notes->died_at = choir__now();
        raise(SIGKILL);
    }
    if (now && t->blow == NO_LOSS && j->rank == t->victim)
        return choir_fail(micro, CHOIR_ERR_STATE, "no more data on rank %d", j->rank);
    choir_tensor *x = choir_full(micro, CHOIR_F32, choir_dims(8, WIDTH), 0.5);
    choir_tensor *y = choir_full(
        micro, CHOIR_I64, choir_dims(8), now && t->blow == BAD_CLASS ? WIDTH + 7 : 1);
    return choir_cross_entropy(choir_forward(net, x), y);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_status status = choir_pipeline_step(j->pipe, step, MICROS, micro_batch, j, j->losses);
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static choir_status train(job *j, choir_scope *run)
{
    choir_status status = choir_scope_status(run);
    for (j->step = 0; j->step < STEPS && status == CHOIR_OK; j->step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)j->step);
        status = body(s, j);
        choir_status closed = choir_scope_close(s);
        status = status == CHOIR_OK ? closed : status;
        if (status == CHOIR_OK)
            choir_item(j->losses[0]);
        status = status == CHOIR_OK ? choir_scope_status(run) : status;
    }
    return status;
}

static int rank_main(int rank, int world, void *arg)
{
    job j = {.trial = arg, .rank = rank};
    notes *n = j.trial->notes;
    choir_env env;
    choir_module *net;
    signal(SIGTERM, SIG_IGN); /* of choir_spawn, which would end the others at once */
    note_self(n, rank);
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_scope_open(env.device, 3);
    net = choir_nn_sequential(run, choir_nn_linear(run, WIDTH, WIDTH),
        choir_nn_linear(run, WIDTH, WIDTH), choir_nn_linear(run, WIDTH, WIDTH),
        choir_nn_linear(run, WIDTH, WIDTH));
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.group = env.group;
    opts.schedule = "1f1b";
    opts.cuts = "1,2,3";
    choir_mesh *mesh = NULL;
    if (j.trial->mesh) {
        static const char *const names[] = {"data", "pipeline"};
        choir_check(choir_mesh_new(env.group, 2, names, (const int[]){2, 2}, &mesh));
        opts.group = choir_mesh_group(mesh, "pipeline");
        opts.cuts = "2";
    }
    j.pipe = choir_pipeline(run, net, opts);
    if (mesh) {
        choir_ddp_opts ddp = choir_ddp_defaults();
        ddp.microbatches = 2 * MICROS;
        j.pipe = choir_ddp(run, j.pipe, choir_mesh_group(mesh, "data"), ddp);
    }
    j.optim = choir_sgd(run, j.pipe, choir_sgd_defaults());
    note(n, rank, train(&j, run));
    choir_scope_close(run);
    choir_mesh_free(mesh);
    choir_env_free(&env);
    return 0;
}

static notes *strike_some(how blow, int victim, const char *backend, bool mesh)
{
    trial t = {.notes = new_notes(), .blow = blow, .victim = victim, .mesh = mesh};
    if (backend)
        setenv("CHOIR_BACKEND", backend, 1);
    choir_status status = choir_spawn(RANKS, rank_main, &t);
    unsetenv("CHOIR_BACKEND");
    assert_int_equal(status, blow == KILLED ? CHOIR_ERR_PEER_LOST : CHOIR_OK);
    return t.notes;
}

static notes *strike(how blow, int victim, const char *backend)
{
    return strike_some(blow, victim, backend, false);
}

static void killed(void **state)
{
    for (int victim = 0; victim < RANKS; victim++) {
        notes *n = strike(KILLED, victim, NULL);
        char want[100];
        snprintf(want, sizeof want, "rank %d (pid %d, stage %d of the pipeline)", victim,
            (int)n->pid[victim], victim);
        assert_others_told(n, RANKS, victim, want);
        munmap(n, sizeof *n);
    }
}

/* Kills a rank of two replicas of two stages. The error may come from the pipeline or from the
 * replicas' group. */
static void killed_in_mesh(void **state)
{
    for (int victim = 0; victim < RANKS; victim++) {
        notes *n = strike_some(KILLED, victim, NULL, true);
        char want[100];
        snprintf(want, sizeof want, "(pid %d, stage %d of replica %d of the pipeline)",
            (int)n->pid[victim], victim % 2, victim / 2);
        assert_others_told(n, RANKS, victim, want);
        munmap(n, sizeof *n);
    }
}

static void program_fails_in_mesh(void **state)
{
    notes *n = strike_some(NO_LOSS, 3, NULL, true);
    for (int r = 0; r < RANKS; r++)
        assert_told(n, r, "no more data on rank 3");
    munmap(n, sizeof *n);
}

static void program_fails(void **state)
{
    for (int victim = 0; victim < RANKS; victim += RANKS - 1) {
        notes *n = strike(NO_LOSS, victim, NULL);
        char want[100];
        snprintf(want, sizeof want, "no more data on rank %d", victim);
        for (int r = 0; r < RANKS; r++)
            assert_told(n, r, want);
        munmap(n, sizeof *n);
    }
}

static void kernel_fails(void **state)
{
    notes *n = strike(BAD_CLASS, 0, NULL);
    for (int r = 0; r < RANKS; r++)
        assert_told(n, r, "71");
    munmap(n, sizeof *n);
}

/* Runs the test over UCX, as between machines. */
static void killed_over_ucx(void **state)
{
    skip_without_ucx();
    for (int victim = 1; victim < RANKS; victim += 2) {
        notes *n = strike(KILLED, victim, "ucx");
        char want[100];
        snprintf(want, sizeof want, "rank %d (pid %d, stage %d of the pipeline)", victim,
            (int)n->pid[victim], victim);
        for (int r = 0; r < RANKS; r++)
            if (r != victim)
                assert_told(n, r, want);
        munmap(n, sizeof *n);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    setenv("CHOIR_CPU_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed),
        cmocka_unit_test(program_fails),
        cmocka_unit_test(kernel_fails),
        cmocka_unit_test(killed_in_mesh),
        cmocka_unit_test(program_fails_in_mesh),
        cmocka_unit_test(killed_over_ucx),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
