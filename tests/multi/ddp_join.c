/* Uneven inputs: ranks that run out of data shadow the steps of the others. The remaining
 * gradients are divided by the micro-batches of all ranks, or of the ranks that still have
 * data. All ranks end with the same model, and with the same optimizer state if it joins. */

#include "ddp_fixture.h"

typedef struct uneven {
    job j;
    int steps[RANKS]; /* of each rank */
    choir_ddp_join_opts join;
    bool with_optim;
} uneven;

static uneven uneven_job;

static job ddp_job(int64_t micro)
{
    job j = {.micro = micro, .steps = 0, .ddp = true, .opts = choir_ddp_defaults()};
    j.opts.bucket_cap_mb = j.opts.first_bucket_mb = 0.001;
    return j;
}

static int join_run(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    uneven u = uneven_job;
    open_job(&j);
    if (u.with_optim)
        u.join.optim = j.optim;
    choir_status status = choir_ddp_join_begin(j.model, u.join);
    for (int s = 0; s < u.steps[rank] && status == CHOIR_OK; s++)
        status = one_step(&j, s);
    if (status == CHOIR_OK)
        status = choir_ddp_join_end(j.model);
    if (status == CHOIR_OK && u.with_optim) /* and together again */
        status = one_step(&j, 4);
    if (status == CHOIR_OK)
        status = choir_device_sync(j.env.device);
    return close_job(&j, status);
}

static outcome *launch_uneven(int ranks, uneven u)
{
    uneven_job = u;
    return launch(ranks, join_run, u.j);
}

static void assert_one_model(const outcome *o, int ranks, bool state)
{
    for (int r = 0; r < ranks; r++) {
        if (o[r].failed)
            fail_msg("rank %d: %s", r, o[r].message);
        assert_memory_equal(o[0].weights, o[r].weights, (size_t)o->count * sizeof(float));
        if (state)
            assert_memory_equal(o[0].state, o[r].state, (size_t)o->state_count * sizeof(float));
    }
}

/* --- numbers that can be checked by hand: y = w x, loss y, so the gradient is x --- */

typedef struct line {
    bool by_active;
    int batches[3]; /* of each rank */
    float *out;     /* (3) w of each rank */
} line;

static int on_a_line(int rank, int world, void *arg)
{
    line *l = arg;
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1);
    choir_module *net = choir_nn_linear_with(run, 1, 1, false, choir_init_constant(0));
    net = choir_ddp(run, net, env.group, choir_ddp_defaults());
    choir_sgd_opts hp = choir_sgd_defaults();
    hp.lr = 1;
    choir_optim *sgd = choir_sgd(run, net, hp);
    choir_ddp_join_opts join = choir_ddp_join_defaults();
    join.divide_by_active = l->by_active;
    CHECK_OK(choir_ddp_join_begin(net, join));
    for (int b = 0; b < l->batches[rank]; b++) {
        float x = (float)(10 * b + rank + 1);
        choir_scope *s = choir_step_open(run, (uint64_t)b);
        choir_tensor *y = choir_forward(net, choir_from(s, CHOIR_F32, choir_dims(1, 1), &x));
        CHECK_OK(choir_backward(choir_mean(y)));
        CHECK_OK(choir_optim_step(sgd));
        CHECK_OK(choir_scope_close(s));
    }
    CHECK_OK(choir_ddp_join_end(net));
    CHECK_OK(choir_read(choir_module_find(net, "weight"), &l->out[rank], sizeof(float)));
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void expect(int ranks, bool by_active, int a, int b, int c, double w)
{
    float *out = shared_memory(4096);
    line l = {by_active, {a, b, c}, out};
    choir_status status = choir_spawn(ranks, on_a_line, &l);
    ok(status);
    for (int r = 0; r < ranks; r++)
        assert_float_equal(out[r], w, 1e-6);
    munmap(out, 4096);
}

/* Batch b of rank r has the gradient 10 b + r + 1. */
static void test_division(void **state)
{
    expect(2, false, 1, 2, 0, -(1 + 2) / 2.0 - 12 / 2.0); /* SEMANTICS: 1 and 2 batches */
    expect(2, true, 1, 2, 0, -(1 + 2) / 2.0 - 12);
    expect(2, false, 2, 1, 0, -(1 + 2) / 2.0 - 11 / 2.0);
    expect(2, false, 0, 1, 0, -2 / 2.0);
    expect(2, false, 0, 0, 0, 0);
    expect(3, false, 1, 3, 2, -6 / 3.0 - (12 + 13) / 3.0 - 22 / 3.0);
    expect(3, true, 1, 3, 2, -6 / 3.0 - (12 + 13) / 2.0 - 22);
    expect(3, false, 0, 0, 2, -3 / 3.0 - 13 / 3.0);
}

/* --- a model with statistics and a table --- */

/* With the micro-batches of ended ranks empty, the bits are those of a job in which they are
 * zero, or, if requested, are left out. A job of one rank checks this. */
static void test_models(void **state)
{
    static const int lengths[][RANKS] = {{1, 2, 4}, {4, 1, 2}, {0, 3, 1}, {2, 2, 2}};
    for (size_t l = 0; l < CHOIR_COUNT(lengths); l++)
        for (int ranks = 2; ranks <= 3; ranks++)
            for (int with = 0; with < 4; with++) {
                uneven u = {.j = ddp_job(2 * ranks), .with_optim = with & 1};
                u.join.divide_by_active = with & 2;
                memcpy(u.steps, lengths[l], sizeof u.steps);
                outcome *o = launch_uneven(ranks, u);
                assert_one_model(o, ranks, u.with_optim || lengths[l][0] == lengths[l][1]);
                let_go(o);
            }
}

/* Ranks of equal lengths, and steps after the end, have the bits of a job without a join. */
static int unjoined(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    open_job(&j);
    choir_status status = CHOIR_OK;
    for (int s = 0; s < 3 && status == CHOIR_OK; s++)
        status = one_step(&j, s);
    if (status == CHOIR_OK)
        status = one_step(&j, 4);
    return close_job(&j, status);
}

static void test_even(void **state)
{
    for (int by_active = 0; by_active < 2; by_active++) {
        uneven u = {.j = ddp_job(4), .steps = {3, 3}};
        u.join.divide_by_active = by_active;
        u.with_optim = true;
        outcome *joined = launch_uneven(2, u), *plain = launch(2, unjoined, u.j);
        assert_same(&joined[0], &plain[0]);
        assert_same(&joined[1], &plain[1]);
        let_go(joined);
        let_go(plain);
    }
}

/* The last step of rank 0 alone, divided by its micro-batches, equals that of a job of one
 * rank. */
static int one_rank_goes_on(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    choir_ddp_join_opts join = choir_ddp_join_defaults();
    join.divide_by_active = true;
    open_job(&j);
    CHECK_OK(choir_ddp_join_begin(j.model, join));
    if (rank == 0)
        CHECK_OK(one_step(&j, 0));
    CHECK_OK(choir_ddp_join_end(j.model));
    return close_job(&j, CHOIR_OK);
}

static void test_alone(void **state)
{
    job single = {.micro = 2, .steps = 1, .opts = choir_ddp_defaults()};
    outcome *one = launch(1, train, single), *two = launch(2, one_rank_goes_on, ddp_job(4));
    assert_same(&one[0], &two[0]);
    assert_memory_equal(one->weights, two[1].weights, (size_t)one->count * sizeof(float));
    let_go(one);
    let_go(two);
}

/* --- with what else DDP can --- */

static int changes(int64_t step, int64_t micro)
{
    return step == 1 ? LEFT | SPARE : micro % 2 ? LEFT | TABLE : RIGHT | LEFT;
}

static void use_hook(job *j)
{
    choir_powersgd_opts opts = choir_powersgd_defaults();
    opts.start_step = 1;
    choir_check(choir_ddp_powersgd(j->model, opts));
}

static void test_combined(void **state)
{
    for (int with = 0; with < 4; with++) {
        uneven u = {.j = ddp_job(3), .steps = {1, 3, 2}, .with_optim = true};
        u.j.opts.find_unused_parameters = with & 1;
        u.j.mask = with & 1 ? changes : NULL;
        u.j.prepare = with & 2 ? use_hook : NULL;
        outcome *o = launch_uneven(3, u);
        assert_one_model(o, 3, true);
        let_go(o);
    }
}

static void test_fail_early(void **state)
{
    uneven u = {.j = ddp_job(3), .steps = {3, 1, 3}};
    u.join.fail_early = true;
    outcome *o = launch_uneven(3, u);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(o[r].failed, CHOIR_ERR_STATE);
        assert_non_null(strstr(
            o[r].message, "ddp: rank 1 has run out of data, and the join is to fail early"));
    }
    let_go(o);
}

/* --- recorded steps, and misuse --- */

static int recorded_join(int rank, int world, void *arg)
{
    recorded_job f = {.j = *(job *)arg};
    float x[ROWS * WIDTH];
    int64_t ids[ROWS] = {1, 2, 1, rank, 4};
    open_job(&f.j);
    for (int i = 0; i < ROWS * WIDTH; i++)
        x[i] = (float)((i * 7 + 3 * rank) % 11) / 5 - 1;
    f.x = choir_from(f.j.run, CHOIR_F32, choir_dims(ROWS, WIDTH), x);
    f.ids = choir_from(f.j.run, CHOIR_I64, choir_dims(ROWS), ids);
    choir_ddp_join_opts join = choir_ddp_join_defaults();
    join.optim = f.j.optim;
    for (int s = 0; s < 4; s++) /* recorded without a join: not to be replayed within */
        CHECK_OK(choir_step(f.j.run, recorded_step, &f));
    CHECK_OK(choir_ddp_join_begin(f.j.model, join));
    for (int s = 0; s < 4 + 3 * rank; s++)
        CHECK_OK(choir_step(f.j.run, recorded_step, &f));
    CHECK_OK(choir_ddp_join_end(f.j.model));
    for (int s = 0; s < 4; s++)
        CHECK_OK(choir_step(f.j.run, recorded_step, &f));
    return close_job(&f.j, CHOIR_OK);
}

static void test_recorded(void **state)
{
    outcome *o = launch(2, recorded_join, ddp_job(2));
    assert_one_model(o, 2, true);
    let_go(o);
}

static int misuses(int rank, int world, void *arg)
{
    job j = *(job *)arg;
    choir_ddp_join_opts join = choir_ddp_join_defaults();
    open_job(&j);
    CHECK(choir_ddp_join_end(j.model) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "no join is under way: begin one first"));
    CHECK(choir_ddp_join_begin(&j.net->base, join) == CHOIR_ERR_ARGUMENT);
    CHECK_OK(choir_ddp_no_sync(j.model, true));
    CHECK(choir_ddp_join_begin(j.model, join) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "plan them by micro-batches"));
    CHECK_OK(choir_ddp_no_sync(j.model, false));
    CHECK_OK(choir_ddp_join_begin(j.model, join));
    CHECK(choir_ddp_join_begin(j.model, join) == CHOIR_ERR_STATE);
    CHECK(choir_ddp_no_sync(j.model, true) == CHOIR_ERR_STATE);
    choir_scope *s = choir_step_open(j.run, 0);
    CHECK_OK(one_micro(&j, s, 0, j.first));
    CHECK(choir_ddp_join_end(j.model) == CHOIR_ERR_STATE);
    CHECK(strstr(choir_error_message(), "choir_optim_step ends it first"));
    CHECK_OK(choir_optim_step(j.optim));
    CHECK_OK(choir_scope_close(s));
    CHECK_OK(choir_ddp_join_end(j.model));
    return close_job(&j, CHOIR_OK);
}

static void test_misuse(void **state)
{
    let_go(launch(2, misuses, ddp_job(2)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_division),
        cmocka_unit_test(test_models), cmocka_unit_test(test_even),
        cmocka_unit_test(test_alone), cmocka_unit_test(test_combined),
        cmocka_unit_test(test_fail_early), cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_misuse)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
