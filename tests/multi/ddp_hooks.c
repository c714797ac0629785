/* Communication hooks of DDP. The exact hook gives the exact bits; 16-bit hooks keep the bound
 * in their header. PowerSGD is exact for a gradient of its rank, approximates the sum of other
 * gradients, and gives the same bits on all ranks. Recorded steps continue as other steps do,
 * and an error in a hook is reported on all ranks. */
#include <math.h>

#include "ddp_fixture.h"

typedef struct watch {
    choir_ddp_hook *inner;
    void *inner_arg;
    int (*fill)(const choir_ddp_bucket *b, int step, int rank); /* writes gradients; or NULL */
    float *local, *result; /* what came in and went out, FLOATS each; or NULL */
    int step, rank;
    int64_t at; /* of the first bucket of a step: 0 */
} watch;

typedef struct copy_args {
    choir_ddp_bucket bucket;
    watch *w;
    float *to;
    int step;
} copy_args;

static choir_status copy_bucket(const void *args)
{
    const copy_args *a = args;
    if (a->to)
        memcpy(a->to, a->bucket.data, (size_t)a->bucket.count * sizeof(float));
    return CHOIR_OK;
}

static choir_status fill_bucket(const void *args)
{
    const copy_args *a = args;
    if (a->w->fill)
        a->w->fill(&a->bucket, a->step, a->w->rank);
    return copy_bucket(args);
}

/* Around another hook; all buckets side by side in local and result. */
static choir_status watching(const choir_ddp_bucket *b, void *arg)
{
    watch *w = arg;
    choir_work work;
    if (b->index == 0)
        w->at = 0;
    copy_args in = {*b, w, w->local ? w->local + w->at : NULL, w->step}, out = in;
    out.to = w->result ? w->result + w->at : NULL;
    w->at += b->count;
    if (w->at > FLOATS)
        return choir__error(CHOIR_ERR_ARGUMENT, "the test has no room for %d", (int)w->at);
    w->step += b->index == b->buckets - 1;
    choir_status status = choir_group_call(b->group, fill_bucket, &in, sizeof in, &work);
    if (status == CHOIR_OK)
        status = w->inner(b, w->inner_arg);
    if (status == CHOIR_OK)
        status = choir_group_call(b->group, copy_bucket, &out, sizeof out, &work);
    return status;
}

static job with_hook(int64_t micro)
{
    return (job){.micro = micro, .steps = 1, .ddp = true, .opts = choir_ddp_defaults()};
}

/* --- exact, and 16 bits --- */

static choir_ddp_hook *tried;

static int one_hooked_step(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    outcome *o = &j.out[rank];
    watch w = {.inner = tried, .local = o->state, .result = o->weights};
    CHECK_OK(choir_ddp_set_hook(j.model, watching, &w));
    CHECK_OK(one_step(&j, 0));
    CHECK_OK(choir_device_sync(j.env.device));
    o->counts[0] = w.at;
    CHECK_OK(choir_scope_close(j.run));
    choir_env_free(&j.env);
    return 0;
}

static void use_all_reduce(job *j)
{
    choir_check(choir_ddp_set_hook(j->model, choir_ddp_all_reduce, NULL));
}

/* Checks for the bits of the exact reduction on a power of two of ranks. */
static void test_all_reduce(void **state)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        job j = with_hook(2 * ranks);
        j.steps = 4;
        outcome *plain = launch(ranks, train, j);
        j.prepare = use_all_reduce;
        j.opts.first_bucket_mb = j.opts.bucket_cap_mb = 0.001;
        outcome *o = launch(ranks, train, j);
        for (int r = 0; r < ranks; r++)
            assert_same(plain, &o[r]);
        let_go(o);
        let_go(plain);
    }
}

static void keeps_bound(choir_ddp_hook *hook, double u, double least)
{
    tried = hook;
    for (int ranks = 2; ranks <= 3; ranks++) {
        outcome *o = launch(ranks, one_hooked_step, with_hook(ranks));
        int rounded = 0;
        for (int64_t i = 0; i < o->counts[0]; i++) {
            double mean = 0, sizes = 0;
            for (int r = 0; r < ranks; r++) {
                mean += (double)o[r].state[i] / ranks;
                sizes += fabs((double)o[r].state[i] / ranks);
                assert_memory_equal(&o[r].weights[i], &o[0].weights[i], sizeof(float));
            }
            double error = fabs((double)o->weights[i] - mean);
            assert_true(error <= 1.01 * u * (sizes + fabs(mean)) + (ranks + 1) * least);
            rounded += (float)mean != o->weights[i];
        }
        assert_true(rounded > 100); /* it did send 16 bits */
        let_go(o);
    }
}

static void test_sixteen_bits(void **state)
{
    keeps_bound(choir_ddp_bf16_compress, 0x1p-8, 0x1p-130);
    keeps_bound(choir_ddp_f16_compress, 0x1p-11, 0x1p-25);
}

/* --- PowerSGD --- */

typedef struct power {
    choir_powersgd_opts opts;
    int (*fill)(const choir_ddp_bucket *b, int step, int rank);
    int steps;
} power;

static power power_job;

/* Runs a rank's gradients of `steps` steps through PowerSGD: state accumulates the results,
 * weights holds the last one, and numbers[s] is the error of step s alone, relative to the
 * mean. */
static int powered(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    power p = power_job;
    float result[FLOATS], local[FLOATS], mean[FLOATS];
    open_job(&j);
    outcome *o = &j.out[rank];
    CHECK_OK(choir_ddp_powersgd(j.model, p.opts));
    choir__ddp *d = (choir__ddp *)j.model;
    watch w = {d->hook, d->hook_arg, p.fill, local, result, 0, rank, 0};
    CHECK_OK(choir_ddp_set_hook(j.model, watching, &w));
    for (int s = 0; s < p.steps; s++) {
        double error = 0, size = 0;
        CHECK_OK(one_step(&j, s));
        CHECK_OK(choir_device_sync(j.env.device));
        memcpy(mean, local, sizeof mean);
        CHECK_OK(choir_group_all_reduce(j.env.group, mean, w.at, CHOIR_F32, CHOIR_MEAN, NULL));
        for (int64_t i = 0; i < w.at; i++) {
            o->state[i] += result[i] - mean[i];
            error +=
                ((double)result[i] - (double)mean[i]) * ((double)result[i] - (double)mean[i]);
            size += (double)mean[i] * (double)mean[i];
        }
        o->numbers[s] = (float)sqrt(error / (size + 1e-30));
        error = 0;
        for (int64_t i = 0; i < w.at; i++)
            error += (double)o->state[i] * (double)o->state[i];
        o->numbers[32 + s] = (float)(sqrt(error / (size + 1e-30)) / (s + 1));
    }
    o->counts[0] = w.at;
    memcpy(o->weights, result, (size_t)w.at * sizeof *result);
    CHECK_OK(choir_scope_close(j.run));
    choir_env_free(&j.env);
    return 0;
}

static outcome *power_run(int ranks, power p)
{
    power_job = p;
    outcome *o = launch(ranks, powered, with_hook(ranks));
    for (int r = 1; r < ranks; r++)
        assert_memory_equal(o[0].weights, o[r].weights, (size_t)o->counts[0] * sizeof(float));
    return o;
}

static float noise(int64_t i, int seed)
{
    uint64_t z = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15u + (uint64_t)seed * 0xD1B54A32D192ED03u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (float)(z >> 40) * 0x1p-23f - 1;
}

/* Matrices of rank 2, the same column space on all ranks. */
static int of_rank_2(const choir_ddp_bucket *b, int step, int rank)
{
    for (int e = 0; e < b->entry_count; e++) {
        const choir_ddp_entry *x = &b->entries[e];
        int64_t m = x->count / x->shape.dim[0];
        for (int64_t i = 0; i < x->count; i++)
            b->data[x->at + i] = noise(i / m, 1 + e) * noise(i % m, 100 + rank) +
                                 noise(i / m, 50 + e) * noise(i % m, 200 + rank);
    }
    return 0;
}

/* Writes a gradient of full rank that is the same in every step. */
static int constant(const choir_ddp_bucket *b, int step, int rank)
{
    for (int e = 0; e < b->entry_count; e++)
        for (int64_t i = 0; i < b->entries[e].count; i++)
            b->data[b->entries[e].at + i] = noise(i, rank + 10 * e);
    return 0;
}

static int zero_at_first(const choir_ddp_bucket *b, int step, int rank)
{
    if (step >= 2)
        return of_rank_2(b, step, rank);
    memset(b->data, 0, (size_t)b->count * sizeof *b->data);
    return 0;
}

static power power_of(int rank, int64_t start, int steps)
{
    power p = {.opts = choir_powersgd_defaults(), .steps = steps};
    p.opts.rank = rank;
    p.opts.start_step = start;
    p.opts.min_rate = 1;
    return p;
}

static void test_rank_is_enough(void **state)
{
    for (int ranks = 1; ranks <= 3; ranks++) {
        power p = power_of(2, 0, 4);
        p.fill = of_rank_2;
        outcome *o = power_run(ranks, p);
        for (int s = 0; s < p.steps; s++)
            assert_true(o->numbers[s] < 1e-5f);
        let_go(o);
        p = power_of(WIDTH, 0, 3); /* of any gradient all there is */
        p.opts.min_rate = 1e-9;
        o = power_run(ranks, p);
        for (int s = 0; s < p.steps; s++)
            assert_true(o->numbers[s] < 1e-5f);
        let_go(o);
    }
}

static void test_error_feedback(void **state)
{
    power p = power_of(2, 0, 30);
    p.fill = constant;
    outcome *o = power_run(2, p);
    assert_true(o->numbers[0] > 0.3f);        /* one step leaves much out */
    assert_true(o->numbers[32 + 29] < 0.25f); /* it came later */
    assert_true(o->numbers[32 + 29] < o->numbers[32 + 14]);
    let_go(o);
    p.opts.error_feedback = false;
    o = power_run(2, p);
    assert_true(o->numbers[32 + 29] > 0.3f);
    let_go(o);
}

/* Power iterations: the rank-2 part of a constant gradient comes out better and better. */
static void test_warm_start(void **state)
{
    power p = power_of(2, 0, 20);
    p.fill = constant;
    p.opts.error_feedback = false;
    outcome *warm = power_run(2, p);
    p.opts.warm_start = false;
    outcome *cold = power_run(2, p);
    assert_true(warm->numbers[19] < warm->numbers[0]);
    assert_true(warm->numbers[19] < cold->numbers[19]);
    assert_true(cold->numbers[19] != cold->numbers[18]); /* drawn again */
    let_go(warm);
    let_go(cold);
}

static void test_zero_gradients(void **state)
{
    power p = power_of(2, 0, 4);
    p.fill = zero_at_first;
    outcome *o = power_run(2, p);
    for (int64_t i = 0; i < o->counts[0]; i++)
        assert_true(isfinite(o->weights[i]));
    assert_true(o->numbers[2] < 1e-5f && o->numbers[3] < 1e-5f);
    let_go(o);
}

static void test_start(void **state)
{
    power p = power_of(1, 3, 5);
    outcome *o = power_run(2, p);
    for (int s = 0; s < 5; s++)
        assert_true(s < 3 ? o->numbers[s] < 1e-6f : o->numbers[s] > 1e-4f);
    let_go(o);
}

/* --- recorded steps --- */

static int over_and_over(int rank, int world, void *arg)
{
    recorded_job r = {.j = *(job *)arg};
    int64_t ids[ROWS] = {0, 5, rank, 2, 5};
    float x[ROWS * WIDTH];
    open_job(&r.j);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = noise(i, rank);
    r.x = choir_from(r.j.run, CHOIR_F32, choir_dims(ROWS, WIDTH), x);
    r.ids = choir_from(r.j.run, CHOIR_I64, choir_dims(ROWS), ids);
    for (int s = 0; s < r.j.steps; s++) {
        if (r.j.recorded) {
            CHECK_OK(choir_step(r.j.run, recorded_step, &r));
        } else {
            choir_scope *step = choir_step_open(r.j.run, (uint64_t)s);
            CHECK_OK(recorded_step(step, &r));
            CHECK_OK(choir_scope_close(step));
        }
    }
    return close_job(&r.j, CHOIR_OK);
}

static void use_bf16(job *j)
{
    choir_check(choir_ddp_set_hook(j->model, choir_ddp_bf16_compress, NULL));
}

static void use_power(job *j)
{
    choir_powersgd_opts opts = choir_powersgd_defaults();
    opts.start_step = 3;
    choir_check(choir_ddp_powersgd(j->model, opts));
}

static void test_recorded(void **state)
{
    void (*const hooks[])(job *) = {use_bf16, use_power, use_all_reduce};
    for (size_t h = 0; h < CHOIR_COUNT(hooks); h++) {
        job j = with_hook(2);
        j.steps = 10;
        j.prepare = hooks[h];
        outcome *one = launch(2, over_and_over, j);
        j.recorded = true;
        outcome *two = launch(2, over_and_over, j);
        for (int r = 0; r < 2; r++) {
            assert_same(&one[0], &two[r]);
            assert_same(&one[0], &one[r]);
        }
        let_go(one);
        let_go(two);
    }
}

/* --- what goes wrong --- */

static choir_status fails(const void *args)
{
    return choir__error(CHOIR_ERR_NONFINITE, "the hook's own words");
}

static choir_status failing(const choir_ddp_bucket *b, void *arg)
{
    choir_work work;
    choir_status status = choir_ddp_all_reduce(b, arg);
    if (status == CHOIR_OK && choir_group_rank(b->group) == 1)
        status = choir_group_call(b->group, fails, NULL, 0, &work);
    return status;
}

static choir_status refusing(const choir_ddp_bucket *b, void *arg)
{
    return choir__error(CHOIR_ERR_ARGUMENT, "no bucket of %d", (int)b->index);
}

static void use_failing(job *j)
{
    choir_check(choir_ddp_set_hook(j->model, failing, NULL));
}

static void use_refusing(job *j)
{
    choir_check(choir_ddp_set_hook(j->model, refusing, NULL));
}

static void test_failing(void **state)
{
    job j = with_hook(2);
    j.steps = 4;
    j.prepare = use_failing;
    outcome *o = launch(2, train, j);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(o[r].failed, CHOIR_ERR_NONFINITE);
        assert_non_null(strstr(o[r].message, "the hook's own words"));
    }
    let_go(o);
    j.prepare = use_refusing;
    o = launch(1, train, j);
    assert_said(o, "no bucket of 0");
    let_go(o);
}

static int misuses(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    char big[CHOIR_GROUP_ARGS + 1] = "";
    open_job(&j);
    choir_powersgd_opts opts = choir_powersgd_defaults();
    opts.rank = 0;
    CHECK(choir_ddp_powersgd(j.model, opts) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "got 0, 1000 and 2"));
    CHECK(choir_ddp_set_hook(&j.net->base, NULL, NULL) == CHOIR_ERR_ARGUMENT);
    choir_scope *s = choir_step_open(j.run, 0);
    for (int64_t m = 0; m < j.count; m++)
        CHECK_OK(one_micro(&j, s, 0, m));
    CHECK(choir_ddp_set_hook(j.model, choir_ddp_all_reduce, NULL) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "choir_optim_step ends it first"));
    CHECK_OK(choir_optim_step(j.optim));
    CHECK_OK(choir_scope_close(s));
    CHECK_OK(choir_ddp_set_hook(j.model, choir_ddp_all_reduce, NULL));
    CHECK(choir_group_call(j.env.group, fails, big, sizeof big, NULL) == CHOIR_ERR_ARGUMENT);
    choir_group_batch_begin(j.env.group);
    CHECK(choir_group_call(j.env.group, fails, NULL, 0, NULL) == CHOIR_ERR_STATE);
    CHECK_OK(choir_group_batch_end(j.env.group, NULL));
    return close_job(&j, CHOIR_OK);
}

static void test_misuse(void **state)
{
    let_go(launch(2, misuses, with_hook(2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_sixteen_bits), cmocka_unit_test(test_rank_is_enough),
        cmocka_unit_test(test_error_feedback), cmocka_unit_test(test_warm_start),
        cmocka_unit_test(test_zero_gradients), cmocka_unit_test(test_start),
        cmocka_unit_test(test_recorded), cmocka_unit_test(test_failing),
        cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
