/* SyncBatchNorm: ranks that each have a part of a batch compute what one rank computes from all
 * of it: outputs, gradients, running statistics, and the losses of a network. Parts may differ
 * in size. Runs and ranks agree in every bit; recorded steps and recomputation change none. */
#include <math.h>

#include "job_fixture.h"
#include "step_fixture.h"
#include "multi/ranks.h"
#include "tensor/tensor.h"

enum { ROWS = 12, CHANNELS = 5, SIDE = 3, IMAGE = CHANNELS * SIDE * SIDE, STEPS = 6 };

typedef struct outcome { /* in shared memory */
    float y[ROWS * IMAGE], gx[ROWS * IMAGE], gresidual[ROWS * IMAGE];
    float gweight[CHANNELS], gbias[CHANNELS], mean[CHANNELS], var[CHANNELS];
    float losses[STEPS], weights[4096];
} outcome;

typedef struct plan {
    bool uneven, residual, recorded, recompute;
    int64_t groups;
    outcome *out;
} plan;

/* Fixed numbers of either sign, about 1 in size. */
static float number(uint32_t i)
{
    i = (i ^ 61) * 0x9E3779B1u;
    i = (i ^ i >> 15) * 0x85EBCA77u;
    return (float)(i >> 8) / (float)(1 << 23) - 1;
}

/* This rank's rows [lo, hi). */
static void part_of(const plan *p, int rank, int world, int64_t *lo, int64_t *hi)
{
    *lo = ROWS * rank / world;
    *hi = ROWS * (rank + 1) / world;
    if (p->uneven && world > 1) { /* rank 0 has one row, the last one the most */
        *lo = rank;
        *hi = rank + 1 == world ? ROWS : rank + 1;
    }
}

static choir_tensor *rows_of(choir_scope *s, int64_t lo, int64_t hi, float offset, uint32_t key)
{
    float values[ROWS * IMAGE];
    for (int64_t i = lo * IMAGE; i < hi * IMAGE; i++)
        values[i] = number((uint32_t)i + key) + offset;
    return choir_from(
        s, CHOIR_F32, choir_dims(hi - lo, CHANNELS, SIDE, SIDE), values + lo * IMAGE);
}

static void read_all(choir_tensor *t, float *to)
{
    choir_check(choir_read(t, to, (size_t)choir_tensor_count(t) * sizeof *to));
}

/* --- one layer --- */

static int one_layer(int rank, int world, void *arg)
{
    plan *p = arg;
    choir_env env;
    int64_t lo, hi;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 3);
    choir_batch_norm_opts o = choir_batch_norm_defaults();
    o.relu = true;
    choir_module *net = choir_nn_batch_norm_with(run, CHANNELS, o);
    net = choir_sync_batch_norm(run, net, env.group);
    choir_tensor *weight = choir_module_find(net, "weight"),
                 *bias = choir_module_find(net, "bias");
    float w[CHANNELS] = {1, 0.5f, -2, 1.5f, 0.25f}, b[CHANNELS] = {0, 0.3f, -0.1f, 0.2f, 0};
    CHECK_OK(choir_write(weight, w, sizeof w));
    CHECK_OK(choir_write(bias, b, sizeof b));
    part_of(p, rank, world, &lo, &hi);
    choir_scope *s = choir_step_open(run, 0);
    choir_tensor *x = choir_require_grad(rows_of(s, lo, hi, 100, 1)), *r = NULL;
    if (p->residual)
        r = choir_require_grad(rows_of(s, lo, hi, 0, 5000));
    choir_tensor *y = r ? choir_forward(net, x, r) : choir_forward(net, x);
    CHECK_OK(choir_backward(choir_sum(choir_mul(y, rows_of(s, lo, hi, 0.25f, 9000)))));
    float gw[CHANNELS], gb[CHANNELS];
    read_all(choir_grad(x), p->out->gx + lo * IMAGE);
    if (r)
        read_all(choir_grad(r), p->out->gresidual + lo * IMAGE);
    read_all(choir_grad(weight), gw);
    read_all(choir_grad(bias), gb);
    CHECK_OK(choir_group_all_reduce(env.group, gw, CHANNELS, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK_OK(choir_group_all_reduce(env.group, gb, CHANNELS, CHOIR_F32, CHOIR_SUM, NULL));
    CHECK_OK(choir_scope_close(s));
    s = choir_step_open(run, 1); /* backward has given y's memory back */
    choir_set_grad(s, false);
    x = rows_of(s, lo, hi, 100, 1);
    read_all(r ? choir_forward(net, x, rows_of(s, lo, hi, 0, 5000)) : choir_forward(net, x),
        p->out->y + lo * IMAGE);
    CHECK_OK(choir_scope_close(s));
    if (rank == 0) { /* whose micro-batch moved them, twice */
        memcpy(p->out->gweight, gw, sizeof gw);
        memcpy(p->out->gbias, gb, sizeof gb);
        read_all(choir_module_find(net, "running_mean"), p->out->mean);
        read_all(choir_module_find(net, "running_var"), p->out->var);
    }
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static outcome *run_ranks(int ranks, choir_spawn_fn *fn, plan p)
{
    p.out = shared_memory(sizeof *p.out);
    if (choir_spawn(ranks, fn, &p) != CHOIR_OK)
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    return p.out;
}

static void drop(outcome *o)
{
    munmap(o, sizeof *o);
}

/* |a - b| within bound of the largest |b|. */
static void assert_near(const char *what, const float *a, const float *b, int n, double bound)
{
    float largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(b[i]));
    for (int i = 0; i < n; i++) {
        double off = fabs((double)a[i] - (double)b[i]);
        if (!(off <= bound * (double)largest))
            fail_msg("%s: off by %g of %g", what, off, (double)largest);
    }
}

static void compare_layer(plan p)
{
    outcome *whole = run_ranks(1, one_layer, p);
    for (int ranks = 2; ranks <= 4; ranks++) {
        outcome *parts = run_ranks(ranks, one_layer, p);
        outcome *again = run_ranks(ranks, one_layer, p);
        assert_memory_equal(parts, again, sizeof *parts);
        assert_near("y", parts->y, whole->y, ROWS * IMAGE, 1e-6);
        assert_near("gx", parts->gx, whole->gx, ROWS * IMAGE, 1e-6);
        assert_near("gresidual", parts->gresidual, whole->gresidual, ROWS * IMAGE, 1e-6);
        assert_near("gweight", parts->gweight, whole->gweight, CHANNELS, 1e-6);
        assert_near("gbias", parts->gbias, whole->gbias, CHANNELS, 1e-6);
        assert_near("running mean", parts->mean, whole->mean, CHANNELS, 1e-6);
        assert_near("running var", parts->var, whole->var, CHANNELS, 1e-6);
        drop(parts);
        drop(again);
    }
    drop(whole);
}

static void test_layer(void **state)
{
    compare_layer((plan){.residual = false});
    compare_layer((plan){.residual = true});
}

static void test_uneven_rows(void **state)
{
    compare_layer((plan){.uneven = true});
    compare_layer((plan){.uneven = true, .residual = true});
}

/* --- a network under DDP, with a micro-batch per rank --- */

static choir_module *block(choir_scope *run, int64_t in, int64_t out)
{
    return choir_nn_sequential(run, choir_nn_conv2d(run, in, out, 3, choir_conv_defaults()),
        choir_nn_batch_norm(run, out), choir_nn_relu(run));
}

static void copy_out(const char *name, choir_tensor *t, void *arg)
{
    float **at = arg;
    if (choir_tensor_dtype(t) != CHOIR_F32)
        return;
    read_all(t, *at);
    *at += choir_tensor_count(t);
}

static int network(int rank, int world, void *arg)
{
    plan *p = arg;
    choir_env env;
    choir_dataset *data;
    CHECK_OK(choir_env_init(&env));
    job j = {.run = choir_run_open(&env, 11)};
    choir_module *net = choir_nn_sequential(j.run, block(j.run, 2, 8), block(j.run, 8, 8),
        choir_nn_flatten(j.run), choir_nn_linear(j.run, 8 * 4 * 4, 4));
    j.net = choir_ddp(
        j.run, choir_sync_batch_norm(j.run, net, env.group), env.group, choir_ddp_defaults());
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.05f, hp.momentum = 0.9f;
    j.optim = choir_sgd(j.run, j.net, hp);
    if (p->recompute)
        CHECK(choir_module_recompute_blocks(net, true) > 0);
    CHECK_OK(choir_dataset_random(120, choir_dims(2, 8, 8), CHOIR_SCALAR, 4, 5, &data));
    j.data = choir_env_loader(j.run, &env, data, 24);
    CHECK_OK(choir_scope_status(j.run));
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(run_step(j.run, p->recorded, step, body, &j));
        float mine = (float)choir_item(j.loss), mean;
        CHECK_OK(choir_env_mean(&env, &mine, &mean));
        if (rank == 0) /* no other rank may write, not even the old value */
            p->out->losses[step] = mean;
    }
    float *at = p->out->weights;
    if (rank == 0)
        choir_module_visit(net, true, copy_out, &at);
    CHECK_OK(choir_scope_close(j.run));
    choir_dataset_free(data);
    choir_env_free(&env);
    return 0;
}

static void test_network(void **state)
{
    outcome *whole = run_ranks(1, network, (plan){.recorded = false});
    assert_true(whole->losses[STEPS - 1] < whole->losses[0]);
    for (int ranks = 2; ranks <= 4; ranks++) {
        outcome *plain = run_ranks(ranks, network, (plan){.recorded = false});
        outcome *recorded = run_ranks(ranks, network, (plan){.recorded = true});
        outcome *again = run_ranks(ranks, network, (plan){.recorded = true, .recompute = true});
        assert_near("losses", plain->losses, whole->losses, STEPS, 1e-5);
        assert_memory_equal(plain, recorded, sizeof *plain);
        assert_memory_equal(plain, again, sizeof *plain);
        drop(plain);
        drop(recorded);
        drop(again);
    }
    drop(whole);
}

/* --- groups of micro-batches, on any number of ranks --- */

enum { MICROS = 8 };

typedef struct groups_job {
    job j;
    int64_t count;
    choir_batch batches[MICROS];
    choir_tensor *losses[MICROS];
} groups_job;

static choir_tensor *loss_of(choir_scope *micro, int64_t index, choir_module *net, void *arg)
{
    const groups_job *g = arg;
    choir_tensor *x = choir_in(micro, g->batches[index].x);
    return choir_cross_entropy(choir_forward(net, x), choir_in(micro, g->batches[index].y));
}

static choir_status grouped_body(choir_scope *step, void *arg)
{
    groups_job *g = arg;
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < g->count && status == CHOIR_OK; m++)
        status = choir_loader_next(g->j.data, step, &g->batches[m]);
    if (status == CHOIR_OK)
        status = choir_sync_batch_norm_step(step, g->j.net, g->count, loss_of, g, g->losses);
    return status == CHOIR_OK ? choir_optim_step(g->j.optim) : status;
}

static int grouped(int rank, int world, void *arg)
{
    plan *p = arg;
    choir_env env;
    choir_dataset *data;
    groups_job g = {0};
    int64_t first;
    CHECK_OK(choir_env_init(&env));
    env.microbatches = MICROS;
    choir_env_micro(&env, &first, &g.count);
    g.j.run = choir_run_open(&env, 11);
    choir_module *net = choir_nn_sequential(g.j.run, block(g.j.run, 2, 8),
        choir_nn_dropout(g.j.run, 0.1f), block(g.j.run, 8, 8), choir_nn_flatten(g.j.run),
        choir_nn_linear(g.j.run, 8 * 4 * 4, 4));
    choir_sync_batch_norm_opts opts = choir_sync_batch_norm_defaults();
    opts.groups = p->groups;
    net = choir_sync_batch_norm_with(g.j.run, net, env.group, opts);
    g.j.net = choir_ddp(g.j.run, net, env.group, choir_ddp_defaults());
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 0.05f, hp.momentum = 0.9f;
    g.j.optim = choir_sgd(g.j.run, g.j.net, hp);
    if (p->recompute)
        CHECK(choir_module_recompute_blocks(net, true) > 0);
    CHECK_OK(choir_dataset_random(120, choir_dims(2, 8, 8), CHOIR_SCALAR, 4, 5, &data));
    g.j.data = choir_env_loader(g.j.run, &env, data, 24);
    CHECK_OK(choir_scope_status(g.j.run));
    int64_t each = p->groups ? MICROS / p->groups : world;
    int together = choir_sync_batch_norm_together(g.j.run);
    CHECK(MICROS % world ? together > 1 || p->groups == MICROS
                         : together == (each > world ? each / world : 1));
    for (int step = 0; step < STEPS; step++) {
        double mean;
        CHECK_OK(run_step(g.j.run, p->recorded, step, grouped_body, &g));
        CHECK_OK(choir_env_loss(&env, g.losses, &mean));
        if (rank == 0)
            p->out->losses[step] = (float)mean;
    }
    float *at = p->out->weights;
    if (rank == 0)
        choir_module_visit(net, true, copy_out, &at);
    CHECK_OK(choir_scope_close(g.j.run));
    choir_dataset_free(data);
    choir_env_free(&env);
    return 0;
}

/* G groups have the same bits on any number of ranks, recorded or not, recomputed or not. */
static void test_groups(void **state)
{
    for (int64_t groups = 1; groups <= MICROS; groups *= 2) {
        plan p = {.groups = groups};
        outcome *one = run_ranks(1, grouped, p);
        assert_true(one->losses[STEPS - 1] < one->losses[0]);
        for (int ranks = 1; ranks <= MICROS; ranks++) {
            p.recorded = !p.recorded;
            p.recompute = ranks == 2;
            outcome *other = run_ranks(ranks, grouped, p);
            assert_memory_equal(other, one, sizeof *one);
            drop(other);
        }
        p.groups = 0; /* unspecified: a group has one micro-batch of each rank */
        outcome *by_ranks = run_ranks((int)(MICROS / groups), grouped, p);
        assert_memory_equal(by_ranks, one, sizeof *one);
        drop(by_ranks);
        drop(one);
    }
}

typedef enum fault { FAILS, ENDS_EARLY } fault;

/* Micro-batch 1 fails before its norm, or has none. */
static choir_tensor *faulty_loss(
    choir_scope *micro, int64_t index, choir_module *net, void *arg)
{
    choir_tensor *x = choir_require_grad(choir_full(micro, CHOIR_F32, choir_dims(4, 3), 1));
    if (index == 1 && *(const fault *)arg == FAILS)
        return choir_fail(micro, CHOIR_ERR_SHAPE, "micro-batch 1 is faulty");
    return choir_sum(index == 1 ? x : choir_forward(net, x));
}

static int one_rank_with_faults(int rank, int world, void *arg)
{
    static const char *const words[] = {
        "micro-batch 1 is faulty", "1 of 2 micro-batches have come"};
    choir_env env;
    choir_tensor *losses[2];
    CHECK_OK(choir_env_init(&env));
    env.microbatches = 2;
    for (int f = FAILS; f <= ENDS_EARLY + 1; f++) {
        choir_scope *run = choir_run_open(&env, 1);
        choir_module *net = choir_nn_batch_norm(run, 3);
        choir_sync_batch_norm_opts opts = {.groups = 1};
        choir_sync_batch_norm_with(run, net, env.group, opts);
        choir_scope *step = choir_step_open(run, 0);
        if (f <= ENDS_EARLY) {
            CHECK(
                choir_sync_batch_norm_step(step, net, 2, faulty_loss, &f, losses) != CHOIR_OK);
            CHECK(strstr(choir_error_message(), words[f]));
        } else { /* a norm by itself */
            CHECK(choir_sync_batch_norm_step(step, net, 1, faulty_loss, &f, losses) ==
                  CHOIR_ERR_ARGUMENT);
            choir_forward(net, choir_full(step, CHOIR_F32, choir_dims(4, 3), 1));
            CHECK(choir_scope_status(step) == CHOIR_ERR_STATE);
            CHECK(
                strstr(choir_error_message(), "choir_sync_batch_norm_step runs them together"));
        }
        (void)!choir_scope_close(run);
    }
    choir_env_free(&env);
    return 0;
}

static void test_faults(void **state)
{
    ok(choir_spawn(1, one_rank_with_faults, NULL));
}

/* Without a number of groups, some ranks' micro-batches would have no peer to share statistics
 * with. */
static int uneven_micro(int rank, int world, void *arg)
{
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    env.microbatches = world + 1;
    choir_scope *run = choir_run_open(&env, 1);
    choir_module *net = choir_nn_batch_norm(run, 3);
    CHECK(choir_sync_batch_norm(run, net, env.group) == net);
    CHECK(choir_scope_status(run) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "expected a number of groups that divides 3"));
    CHECK(choir_scope_close(run) == CHOIR_ERR_ARGUMENT);
    choir_env_free(&env);
    return 0;
}

static void test_uneven_micro(void **state)
{
    ok(choir_spawn(2, uneven_micro, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layer),
        cmocka_unit_test(test_uneven_rows),
        cmocka_unit_test(test_network),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_uneven_micro),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
