/* DiLoCo and local SGD with a declared number of workers: W workers give the same bits on 1, 2,
 * ... W ranks, in the losses of worker 0 and in all weights, also where one number of ranks
 * continues the checkpoint of another one. Another number of workers is refused, or is another
 * job. */
#include "folder_fixture.h"
#include "job_fixture.h"
#include "multi/ranks.h"

#include <sys/mman.h>

enum { WORKERS = 4, MICROS = 8, STEPS = 10, EVERY = 4, WIDTH = 10, CLASSES = 3 };

typedef struct outcome {
    uint32_t losses[STEPS]; /* worker 0's first micro-batches */
    uint64_t met, end;      /* hashes of the module after the first meeting, and at the end */
    double scale;           /* scale of worker 0 */
} outcome;

typedef struct plan {
    bool local, recorded, scaled, bf16, recut;
    int64_t warmup;
    int64_t workers; /* 0: one per rank */
    int64_t from;    /* step of the checkpoint with which it begins; 0: none */
    bool saves;      /* after EVERY steps */
    const char
        *refused; /* words of the error with which choir_diloco_resume ends; NULL: none */
    outcome out;
} plan;

typedef struct job {
    plan *plan;
    choir_env env;
    choir_scope *run;
    choir_module *net, *bare;
    choir_optim *optim;
    choir_scaler *scaler;
    choir_dataset *set;
    choir_loader *data;
    choir_tensor *loss;
} job;

static choir_module *new_net(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, WIDTH, 16),
        choir_nn_batch_norm(run, 16), choir_nn_relu(run), choir_nn_dropout(run, 0.1f),
        choir_nn_linear(run, 16, CLASSES));
}

static choir_module *wrap(job *j)
{
    const plan *p = j->plan;
    choir_local_sgd_opts local = choir_local_sgd_defaults();
    choir_diloco_opts diloco = choir_diloco_defaults();
    local.every = diloco.every = EVERY;
    local.workers = diloco.workers = p->workers;
    local.recut = diloco.recut = p->recut;
    local.warmup = p->warmup;
    diloco.wire = p->bf16 ? CHOIR_BF16 : CHOIR_F32;
    return p->local ? choir_local_sgd(j->run, j->bare, j->env.group, local)
                    : choir_diloco(j->run, j->bare, j->env.group, diloco);
}

static choir_status open_job(job *j, plan *p)
{
    *j = (job){.plan = p};
    choir_check(choir_env_init(&j->env));
    j->env.microbatches = MICROS;
    j->env.unit = p->workers ? MICROS / p->workers : 0;
    j->run = choir_run_open(&j->env, 11);
    j->bare = new_net(j->run);
    j->net = wrap(j);
    j->optim = clipped_adamw(j->run, j->net);
    if (p->scaled) { /* so large that worker 3's gradients are skipped first */
        choir_scaler_opts opts = choir_scaler_defaults();
        opts.scale = 3e38f;
        opts.interval = 3;
        j->scaler = choir_scaler_new(j->run, opts);
    }
    choir_check(choir_workers_train(j->net, j->optim, j->scaler));
    choir_check(choir_dataset_random(96, choir_dims(WIDTH), CHOIR_SCALAR, CLASSES, 5, &j->set));
    j->data = choir_env_loader(j->run, &j->env, j->set, 24);
    return choir_scope_status(j->run);
}

static void close_job(job *j)
{
    (void)!choir_scope_close(j->run);
    choir_dataset_free(j->set);
    choir_env_free(&j->env);
}

/* One turn: the worker's micro-batches, which are `each` from number `first` on. */
static choir_status run_turn(choir_scope *step, job *j, int64_t first, int64_t each)
{
    choir_status status = CHOIR_OK;
    for (int64_t m = first; m < first + each && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_batch b;
        status = choir_loader_next(j->data, micro, &b);
        choir_tensor *loss = choir_cross_entropy(choir_forward(j->net, b.x), b.y);
        if (m == 0)
            j->loss = choir_keep(j->run, loss);
        if (status == CHOIR_OK)
            status = choir_backward(j->scaler ? choir_scaler_scale(j->scaler, loss) : loss);
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    if (status == CHOIR_OK && !j->scaler)
        return choir_optim_step(j->optim);
    if (status == CHOIR_OK)
        status = choir_scaler_step(j->scaler, j->optim);
    return status == CHOIR_OK ? choir_scaler_update(j->scaler) : status;
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    int64_t first, count, turns = choir_worker_turns(j->net);
    choir_status status = CHOIR_OK;
    choir_env_micro(&j->env, &first, &count);
    for (int64_t t = 0; t < turns && status == CHOIR_OK; t++) {
        status = choir_worker_turn(j->net, t);
        if (status == CHOIR_OK)
            status = run_turn(step, j, first + t * count / turns, count / turns);
    }
    return status;
}

static int begin(job *j, choir_checkpoint *c)
{
    const plan *p = j->plan;
    int64_t step;
    if (!p->from)
        return 0;
    CHECK_OK(choir_checkpoint_load(c, j->bare, j->optim, &step));
    CHECK(step == p->from);
    choir_run_seek(j->run, (uint64_t)step);
    choir_loader_seek_step(j->data, step);
    if (!p->refused) {
        CHECK_OK(choir_diloco_resume(j->net, step));
        return 0;
    }
    CHECK(choir_diloco_resume(j->net, step) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), p->refused));
    return 0;
}

static int note(const job *j, int step)
{
    outcome *out = &j->plan->out;
    if (j->env.rank == 0)
        out->losses[step] = item_bits(j->loss);
    if (j->env.rank == 0 && step + 1 == EVERY)
        out->met = hash_of_module(j->bare);
    CHECK(j->plan->warmup || choir_steps_apart(j->net) == (step + 1) % EVERY);
    return 0;
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j;
    choir_checkpoint *c;
    choir_scaler_state scale = {.scale = 0};
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    CHECK_OK(open_job(&j, p));
    opts.group = j.env.group;
    CHECK_OK(choir_checkpoint_open(at("run"), opts, &c));
    CHECK(begin(&j, c) == 0);
    for (int step = (int)p->from; step < STEPS && !p->refused; step++) {
        CHECK_OK(run_step(j.run, p->recorded, step, body, &j));
        CHECK(note(&j, step) == 0);
        if (p->saves && step + 1 == EVERY)
            CHECK_OK(choir_checkpoint_save(c, j.bare, j.optim, step + 1));
    }
    CHECK_OK(choir_meet(j.net));
    if (j.scaler)
        CHECK_OK(choir_scaler_get(j.scaler, &scale));
    if (rank == 0) {
        p->out.end = hash_of_module(j.bare);
        p->out.scale = (double)scale.scale;
    }
    CHECK_OK(choir_checkpoint_close(c));
    close_job(&j);
    return 0;
}

static outcome run_plan(int ranks, plan p)
{
    train_on_ranks(ranks, train, &p, sizeof p);
    return p.out;
}

/* --- one hash --- */

/* The plan has the same bits on 1 to 4 ranks, recorded or not. */
static void check_ranks(plan p)
{
    outcome first = run_plan(1, p);
    assert_true(first.losses[0] != first.losses[1] && first.met != first.end);
    for (int ranks = 2; ranks <= WORKERS; ranks++) {
        if (p.warmup && WORKERS % ranks)
            continue;
        p.recorded = ranks % 2 == 0;
        outcome other = run_plan(ranks, p);
        assert_memory_equal(&other, &first, sizeof first);
    }
    p.workers = 0; /* one per rank */
    outcome alone = run_plan(WORKERS, p);
    assert_memory_equal(&alone, &first, sizeof first);
}

static void test_diloco(void **state)
{
    check_ranks((plan){.workers = WORKERS});
    check_ranks((plan){.workers = WORKERS, .bf16 = true});
}

static void test_local_sgd(void **state)
{
    check_ranks((plan){.workers = WORKERS, .local = true});
    check_ranks((plan){.workers = WORKERS, .local = true, .warmup = 3});
}

/* Workers skip steps by themselves, and have scales of their own. */
static void test_scaler(void **state)
{
    check_ranks((plan){.workers = WORKERS, .scaled = true});
}

/* More workers on a rank than nodes of the tree. */
static void test_many_workers(void **state)
{
    plan p = {.workers = MICROS};
    outcome first = run_plan(1, p), three = run_plan(3, p), four = run_plan(4, p);
    assert_memory_equal(&three, &first, sizeof first);
    assert_memory_equal(&four, &first, sizeof first);
    p.workers = WORKERS; /* the number of workers is a part of the job */
    four = run_plan(4, p);
    assert_true(four.met != first.met);
}

/* --- checkpoints --- */

static void resume_everywhere(plan p)
{
    static const int ranks[][2] = {{4, 1}, {1, 4}, {3, 2}, {2, 3}};
    p.workers = WORKERS;
    outcome whole = run_plan(1, p);
    for (size_t i = 0; i < CHOIR_COUNT(ranks); i++) {
        plan saved = p, rest = p;
        saved.saves = true;
        rest.from = EVERY;
        (void)run_plan(ranks[i][0], saved);
        outcome end = run_plan(ranks[i][1], rest);
        assert_memory_equal(
            end.losses + EVERY, whole.losses + EVERY, (STEPS - EVERY) * sizeof *end.losses);
        assert_true(end.end == whole.end && end.scale == whole.scale);
    }
}

static void test_resume(void **state)
{
    resume_everywhere((plan){.recorded = true});
    resume_everywhere((plan){.scaled = true});
}

/* Another number of workers is refused, and gives the same bits on any number of ranks. */
static void test_recut(void **state)
{
    plan p = {.workers = WORKERS, .saves = true};
    outcome before = run_plan(4, p);
    p = (plan){.workers = 2, .from = EVERY, .refused = "is of 4 workers, this run has 2"};
    (void)run_plan(2, p);
    p.refused = NULL;
    p.recut = true;
    outcome fewer = run_plan(1, p), fewer2 = run_plan(2, p);
    assert_memory_equal(&fewer, &fewer2, sizeof fewer);
    assert_true(fewer.end != before.end);
    p.workers = MICROS;
    outcome more = run_plan(1, p), more3 = run_plan(3, p);
    assert_memory_equal(&more, &more3, sizeof more);
    assert_true(more.end != fewer.end);
}

/* --- what does not fit --- */

typedef struct misfit {
    int ranks;
    int64_t workers, unit, microbatches, warmup;
    const char *words;
} misfit;

static int make_misfit(int rank, int world, void *arg)
{
    const misfit *m = arg;
    choir_env env;
    choir_local_sgd_opts opts = choir_local_sgd_defaults();
    CHECK_OK(choir_env_init(&env));
    env.microbatches = m->microbatches;
    env.unit = m->unit;
    choir_scope *run = choir_run_open(&env, 1);
    opts.workers = m->workers;
    opts.warmup = m->warmup;
    if (choir_scope_status(run) == CHOIR_OK)
        choir_local_sgd(run, choir_nn_linear(run, 3, 2), env.group, opts);
    CHECK(choir_scope_status(run) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), m->words));
    CHECK(choir_scope_close(run) == CHOIR_ERR_ARGUMENT);
    choir_env_free(&env);
    return 0;
}

static void test_misfits(void **state)
{
    misfit misfits[] = {
        {3, 2, 0, 6, 0, "workers = 2 on 3 ranks; expected a worker or more for each rank"},
        {2, 4, 0, 6, 0, "workers = 4 do not divide 6 micro-batches"},
        {3, 4, 0, 8, 0, "set choir_env.unit to that number"},
        {2, 4, 3, 8, 0, "expected an env.unit that divides 8 micro-batches, got 3"},
        {3, 4, 2, 8, 5, "with a warm-up, the ranks divide the workers"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(misfits); i++)
        ok(choir_spawn(misfits[i].ranks, make_misfit, &misfits[i]));
}

static int take_turns(int rank, int world, void *arg)
{
    plan p = {.workers = WORKERS};
    job j;
    CHECK_OK(open_job(&j, &p));
    CHECK(choir_worker_turns(j.net) == 2);
    CHECK(choir_workers_train(j.net, j.optim, NULL) == CHOIR_ERR_STATE);
    choir_scope *step = choir_step_open(j.run, 0);
    int64_t first, count;
    choir_env_micro(&j.env, &first, &count);
    CHECK_OK(choir_worker_turn(j.net, 0));
    CHECK_OK(run_turn(step, &j, first, 2));
    CHECK(choir_meet(j.net) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "after the turns of all 2 workers"));
    CHECK(run_turn(step, &j, first + 2, 2) == CHOIR_OK);
    CHECK(choir_scope_close(step) == CHOIR_ERR_STATE); /* no turn came before it */
    CHECK(strstr(choir_error_message(), "has stepped twice: choir_worker_turn comes before"));
    close_job(&j);
    CHECK_OK(open_job(&j, &p));
    CHECK(choir_worker_turn(j.net, 1) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "expected turn 0, got 1"));
    close_job(&j);
    return 0;
}

static void test_turns(void **state)
{
    ok(choir_spawn(2, take_turns, NULL));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_diloco),
        cmocka_unit_test(test_local_sgd),
        cmocka_unit_test(test_scaler),
        cmocka_unit_test(test_many_workers),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_recut),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_all);
}
