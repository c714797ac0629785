/* Local SGD and DiLoCo. Ranks differ between synchronizations and have the same bits after
 * each, in every run, recorded or not. A synchronization follows its formula, a warm-up has the
 * bits of DDP, and ranks with different options get an error. */
#include <math.h>

#include "job_fixture.h"
#include "multi/ranks.h"
#include "tensor/scope.h"

enum { STEPS = 9, RANKS = 4, WIDTH = 10, CLASSES = 3, MOST = 2048 };

typedef struct outcome {
    uint64_t trained[RANKS][STEPS], buffers[RANKS][STEPS]; /* hashes after each step */
    int64_t apart[STEPS], meetings;
    float weights[MOST]; /* of rank 0, at the end */
    int count;
} outcome;

typedef enum kind { DDP, LOCAL_SGD, DILOCO } kind;

typedef struct plan {
    kind kind;
    choir_local_sgd_opts local;
    choir_diloco_opts diloco;
    bool recorded, sgd;
    bool pairs;   /* ranks 0, 1 and ranks 2, 3 are near; in DiLoCo each pair is a worker */
    outcome *out; /* shared memory */
} plan;

typedef struct job {
    choir_env env;
    choir_scope *run;
    choir_module *net, *bare;
    choir_optim *optim;
    choir_dataset *set;
    choir_loader *data;
    choir_group *near, *across;
} job;

static choir_module *new_net(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, WIDTH, 16),
        choir_nn_batch_norm(run, 16), choir_nn_relu(run), choir_nn_dropout(run, 0.1f),
        choir_nn_linear(run, 16, 8), choir_nn_linear(run, 8, CLASSES));
}

/* Wraps the network for DiLoCo. With pairs, each pair is a worker that runs DDP inside; rank 0
 * then synchronizes with rank 2, and rank 1 with rank 3. */
static void wrap_diloco(job *j, const plan *p)
{
    choir_group *group = j->env.group;
    if (p->pairs) {
        choir_ddp_opts opts = choir_ddp_defaults();
        opts.microbatches = 2; /* of the pair */
        j->net = choir_ddp(j->run, j->net, j->near, opts);
        choir_check(choir_group_split(group, j->env.rank % 2, j->env.rank, &j->across));
        group = j->across;
    }
    j->net = choir_diloco(j->run, j->net, group, p->diloco);
}

static void open_job(job *j, const plan *p)
{
    choir_check(choir_env_init(&j->env));
    j->run = choir_run_open(&j->env, 11 + (uint64_t)j->env.rank); /* they start apart */
    j->bare = j->net = new_net(j->run);
    choir_local_sgd_opts local = p->local;
    if (p->pairs) {
        choir_check(choir_group_split(j->env.group, j->env.rank / 2, j->env.rank, &j->near));
        local.near = j->near;
    }
    switch (p->kind) {
    case DDP: j->net = choir_ddp(j->run, j->net, j->env.group, choir_ddp_defaults()); break;
    case LOCAL_SGD: j->net = choir_local_sgd(j->run, j->net, j->env.group, local); break;
    case DILOCO: wrap_diloco(j, p); break;
    }
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 0.01f;
    choir_sgd_opts plain = choir_sgd_defaults();
    plain.lr = 0.05f;
    j->optim = p->sgd ? choir_sgd(j->run, j->net, plain) : choir_adamw(j->run, j->net, hp);
    choir_check(choir_dataset_random(96, choir_dims(WIDTH), CHOIR_SCALAR, CLASSES, 5, &j->set));
    j->data = choir_env_loader(j->run, &j->env, j->set, 24);
    choir_check(choir_scope_status(j->run));
}

static void close_job(job *j)
{
    choir_check(choir_scope_close(j->run));
    choir_dataset_free(j->set);
    choir_group_free(j->near);
    choir_group_free(j->across);
    choir_env_free(&j->env);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_batch b;
    choir_status status = choir_loader_next(j->data, step, &b);
    if (status == CHOIR_OK)
        status = choir_backward(choir_cross_entropy(choir_forward(j->net, b.x), b.y));
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

struct hashes {
    uint64_t trained, buffers;
};

static void hash(const char *name, choir_tensor *t, void *arg)
{
    struct hashes *h = arg;
    hash_values(name, t, t->param ? &h->trained : &h->buffers);
}

static void copy_out(const char *name, choir_tensor *t, void *arg)
{
    float **at = arg;
    choir_check(choir_read(t, *at, (size_t)choir_tensor_count(t) * sizeof(float)));
    *at += choir_tensor_count(t);
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg;
    job j = {0};
    open_job(&j, p);
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(run_step(j.run, p->recorded, step, body, &j));
        struct hashes h = {CHOIR__HASH_SEED, CHOIR__HASH_SEED};
        choir_module_visit(j.bare, true, hash, &h);
        p->out->trained[rank][step] = h.trained;
        p->out->buffers[rank][step] = h.buffers;
        if (rank == 0 && p->kind != DDP)
            p->out->apart[step] = choir_steps_apart(j.net);
    }
    if (p->kind != DDP) {
        CHECK_OK(choir_meet(j.net));
        CHECK(choir_steps_apart(j.net) == 0);
        CHECK_OK(choir_meet(j.net)); /* nothing is left to do */
        p->out->meetings = choir_meetings(j.net);
    }
    float *at = p->out->weights;
    if (rank == 0)
        choir_module_visit(j.bare, false, copy_out, &at);
    CHECK(at - p->out->weights <= MOST);
    if (rank == 0)
        p->out->count = (int)(at - p->out->weights);
    close_job(&j);
    return 0;
}

static outcome *run_plan(int ranks, plan p)
{
    p.out = shared_memory(sizeof *p.out);
    if (choir_spawn(ranks, train, &p) != CHOIR_OK)
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    return p.out;
}

static void drop(outcome *o)
{
    munmap(o, sizeof *o);
}

static bool equal_after(const outcome *o, int first, int last, int step)
{
    for (int r = first + 1; r <= last; r++)
        if (o->trained[r][step - 1] != o->trained[first][step - 1])
            return false;
    return true;
}

static plan plan_of(kind of, int64_t every)
{
    plan p = {
        .kind = of, .local = choir_local_sgd_defaults(), .diloco = choir_diloco_defaults()};
    p.local.every = p.diloco.every = every;
    return p;
}

/* The ranks are equal after every `every` steps, counted from `from`, and at no other step. A
 * second run and a recorded run give the same bits. */
static void check_meetings(plan p, int ranks, int from, int every)
{
    outcome *a = run_plan(ranks, p), *b = run_plan(ranks, p);
    p.recorded = true;
    outcome *c = run_plan(ranks, p);
    for (int step = from + 1; step <= STEPS; step++) {
        bool met = (step - from) % every == 0;
        assert_int_equal(equal_after(a, 0, ranks - 1, step), met);
        assert_int_equal(a->apart[step - 1], (step - from) % every);
        for (int r = 1; r < ranks && met; r++)
            assert_true(a->buffers[r][step - 1] == a->buffers[0][step - 1]);
    }
    assert_int_equal(a->meetings, (STEPS - from + every - 1) / every);
    assert_memory_equal(a, b, sizeof *a);
    assert_memory_equal(a, c, sizeof *a);
    drop(a);
    drop(b);
    drop(c);
}

static void test_meetings(void **state)
{
    plan p = plan_of(DILOCO, 4);
    check_meetings(p, 3, 0, 4);
    p.diloco.wire = CHOIR_BF16;
    check_meetings(p, 2, 0, 4);
    check_meetings(plan_of(LOCAL_SGD, 3), 4, 0, 3);
}

static void test_warm_up(void **state)
{
    plan p = plan_of(LOCAL_SGD, 3);
    p.local.warmup = 4;
    check_meetings(p, 3, 4, 3);
    outcome *ddp = run_plan(3, plan_of(DDP, 1)), *warm = run_plan(3, p);
    for (int step = 0; step < 4; step++)
        for (int r = 0; r < 3; r++)
            assert_true(warm->trained[r][step] == ddp->trained[0][step]);
    assert_true(warm->trained[0][4] != ddp->trained[0][4]);
    drop(ddp);
    drop(warm);
}

static void test_near(void **state)
{
    plan p = plan_of(LOCAL_SGD, 4);
    p.pairs = true;
    p.local.near_every = 2;
    outcome *o = run_plan(4, p);
    for (int step = 1; step <= STEPS; step++) {
        assert_int_equal(equal_after(o, 0, 1, step), step % 2 == 0);
        assert_int_equal(equal_after(o, 2, 3, step), step % 2 == 0);
        assert_int_equal(equal_after(o, 0, 3, step), step % 4 == 0);
    }
    drop(o);
}

static void test_workers_of_several_ranks(void **state)
{
    plan p = plan_of(DILOCO, 4);
    p.pairs = true;
    p.recorded = true;
    outcome *o = run_plan(4, p);
    for (int step = 1; step <= STEPS; step++) {
        assert_true(equal_after(o, 0, 1, step) && equal_after(o, 2, 3, step));
        assert_int_equal(equal_after(o, 0, 3, step), step % 4 == 0);
    }
    drop(o);
}

/* An outer step of rate 1 without momentum replaces the weights by the mean: w - (w - mean),
 * rounded. (The inner optimizer is SGD: Adam would turn gradients that are only rounding into
 * steps of its rate.) */
static void test_plain_average(void **state)
{
    for (int every = 1; every <= 3; every += 2) {
        plan p = plan_of(DILOCO, every), q = plan_of(LOCAL_SGD, every);
        p.sgd = q.sgd = true;
        p.diloco.outer_lr = 1;
        p.diloco.momentum = 0;
        p.diloco.nesterov = false;
        outcome *o = run_plan(3, p), *mean = run_plan(3, q);
        assert_int_equal(o->count, mean->count);
        for (int i = 0; i < o->count; i++)
            assert_true(fabsf(o->weights[i] - mean->weights[i]) < 1e-6f);
        drop(o);
        drop(mean);
    }
}

/* --- a meeting by hand --- */

enum { SIZE = 6, MEETINGS = 4 };

/* Weights that ranks "have trained": plain numbers. */
static float moved(float w, int rank, int meeting, int i)
{
    return w + 0.01f * (float)((rank * 7 + meeting * 5 + i * 3) % 11 - 4);
}

static int by_hand(int rank, int world, void *arg)
{
    choir_env env;
    choir_diloco_opts opts = *(choir_diloco_opts *)arg;
    double outer[SIZE], m[SIZE] = {0};
    float w[SIZE];
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    choir_module *net = choir_nn_linear_with(run, SIZE, 1, false, choir_init_uniform(-1, 1));
    choir_tensor *weight = choir_module_find(net, "weight");
    opts.every = 1;
    net = choir_diloco(run, net, env.group, opts);
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0;
    choir_optim *optim = choir_sgd(run, net, hp);
    choir_optim_set_lr(optim, 0); /* meant: rates of 0 alone are refused */
    CHECK_OK(choir_read(weight, w, sizeof w));
    for (int i = 0; i < SIZE; i++)
        outer[i] = (double)w[i];
    for (int meeting = 0; meeting < MEETINGS; meeting++) {
        double lr = (double)opts.outer_lr, mu = (double)opts.momentum, moves = 0;
        for (int i = 0; i < SIZE; i++) {
            double d = 0;
            for (int r = 0; r < world; r++)
                d += (outer[i] - (double)moved((float)outer[i], r, meeting, i)) / world;
            moves = fmax(moves, fabs(d));
            m[i] = mu * m[i] + d;
            w[i] = moved((float)outer[i], rank, meeting, i);
            outer[i] -= lr * (opts.nesterov ? d + mu * m[i] : m[i]);
        }
        CHECK_OK(choir_write(weight, w, sizeof w));
        choir_scope *s = choir_step_open(run, (uint64_t)meeting);
        choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(1, SIZE), 1);
        CHECK_OK(choir_backward(choir_sum(choir_forward(net, x))));
        CHECK_OK(choir_optim_step(optim)); /* of rate 0; then they synchronize */
        CHECK_OK(choir_scope_close(s));
        CHECK_OK(choir_read(weight, w, sizeof w));
        double bound = opts.wire == CHOIR_BF16 ? moves * (meeting + 1) / 100 : 1e-6;
        for (int i = 0; i < SIZE; i++) {
            CHECK(fabs((double)w[i] - outer[i]) < bound);
            outer[i] = (double)w[i];
        }
    }
    CHECK(choir_meetings(net) == MEETINGS);
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void test_by_hand(void **state)
{
    choir_diloco_opts opts = choir_diloco_defaults();
    ok(choir_spawn(3, by_hand, &opts));
    opts.nesterov = false;
    opts.outer_lr = 0.5f;
    ok(choir_spawn(2, by_hand, &opts));
    opts = choir_diloco_defaults();
    opts.wire = CHOIR_BF16;
    ok(choir_spawn(4, by_hand, &opts));
    opts.momentum = 0;
    ok(choir_spawn(1, by_hand, &opts));
}

/* --- what does not fit --- */

typedef struct misfit {
    const char *words;
    choir_status status;
    choir_diloco_opts opts[2]; /* by rank */
    int64_t width[2];
} misfit;

static int meet_misfit(int rank, int world, void *arg)
{
    const misfit *m = arg;
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    choir_diloco(run, choir_nn_linear(run, m->width[rank], 2), env.group, m->opts[rank]);
    CHECK(choir_scope_status(run) == m->status);
    CHECK(strstr(choir_error_message(), m->words));
    CHECK(choir_scope_close(run) == m->status);
    choir_env_free(&env);
    return 0;
}

static void test_misfits(void **state)
{
    choir_diloco_opts d = choir_diloco_defaults(), other = d, none = d, wild = d, half = d;
    other.every = 7;
    none.every = 0;
    wild.momentum = 1;
    half.wire = CHOIR_BF16;
    const misfit misfits[] = {
        {"has other parameters", CHOIR_ERR_MISMATCH, {d, d}, {3, 4}},
        {"is to meet every", CHOIR_ERR_MISMATCH, {d, other}, {3, 3}},
        {"and sends", CHOIR_ERR_MISMATCH, {d, half}, {3, 3}},
        {"expected every of 1 step or more, got 0", CHOIR_ERR_ARGUMENT, {none, none}, {3, 3}},
        {"momentum from 0 to below 1, got 1", CHOIR_ERR_ARGUMENT, {wild, wild}, {3, 3}},
    };
    for (size_t i = 0; i < CHOIR_COUNT(misfits); i++) {
        misfit m = misfits[i];
        ok(choir_spawn(2, meet_misfit, &m));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_meetings),
        cmocka_unit_test(test_warm_up),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_workers_of_several_ranks),
        cmocka_unit_test(test_plain_average),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_misfits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
