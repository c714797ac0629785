/* FSDP alone: the shards of a rank and their memory, LAMB's norms over shards, eight ranks,
 * units by class, by size and by hand, and invalid options. multi/same_bits.c checks that FSDP
 * has the bits of one device and of DDP. */
#include "job_fixture.h"
#include "autograd/book.h"
#include "multi/ranks.h"
#include "nn/module.h"
#include "parallel/fsdp/fsdp.h"
#include "tensor/scope.h"

enum { WIDTH = 10, STEPS = 4, M = 8 };

typedef struct outcome {
    uint32_t loss[STEPS];
    float weights[3 * WIDTH * WIDTH]; /* of the middle layers */
} outcome;

typedef struct plan {
    choir_fsdp_opts opts;
    bool fsdp, lamb, mark, recorded;
    outcome out;
} plan;

static choir_module *middle(choir_scope *run)
{
    return choir_nn_sequential(run, choir_nn_linear(run, WIDTH, WIDTH), choir_nn_relu(run));
}

/* Rows of 10, 5 and 1: some parameters have no rows on some ranks. */
static choir_module *new_net(choir_scope *run, bool mark)
{
    choir_module *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = middle(run);
        if (mark && i != 1)
            choir_fsdp_unit(blocks[i]);
    }
    return choir_nn_sequential(run, choir_nn_linear(run, 5, WIDTH), blocks[0], blocks[1],
        blocks[2], choir_nn_linear(run, WIDTH, 5), choir_nn_linear(run, 5, 1));
}

typedef struct job {
    rank_job r;
    choir_tensor *x;
} job;

static choir_tensor *loss_of_rows(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    choir_tensor *x = choir_narrow(choir_in(micro, j->x), 0, 4 * micro->micro, 4);
    choir_tensor *y = choir_forward(net, x);
    return choir_mean(choir_mul(y, y));
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    return train_rank(&j->r, step, loss_of_rows, j);
}

static void open_job(job *j, const plan *p)
{
    *j = (job){0};
    j->r = open_rank_job(M, 7);
    j->r.net = new_net(j->r.run, p->mark);
    if (p->fsdp)
        j->r.net = choir_fsdp(j->r.run, j->r.net, j->r.env.group, p->opts);
    choir_lamb_opts lamb = choir_lamb_defaults();
    choir_adamw_opts adam = choir_adamw_defaults();
    lamb.lr = adam.lr = 0.02f;
    j->r.optim =
        p->lamb ? choir_lamb(j->r.run, j->r.net, lamb) : choir_adamw(j->r.run, j->r.net, adam);
    choir_optim_clip(j->r.optim, 0.05f);
    j->x = choir_randn(j->r.run, choir_dims(4 * M, 5), "x");
    choir_check(choir_scope_status(j->r.run));
}

static void note_weights(const char *name, choir_tensor *t, void *arg)
{
    float **at = arg;
    if (t->shape.ndim != 2 || t->count != (int64_t)WIDTH * WIDTH)
        return;
    choir_check(choir_read(t, *at, (size_t)t->count * sizeof(float)));
    *at += t->count;
}

static int train(int rank, int world, void *arg)
{
    plan *p = arg, others = *p;
    job j;
    open_job(&j, p);
    for (int s = 0; s < STEPS; s++) {
        const uint32_t loss = step_of_rank(&j.r, p->recorded, s, body, &j);
        if (rank == 0)
            p->out.loss[s] = loss;
    }
    float *at = rank == 0 ? p->out.weights : others.out.weights;
    choir_module_visit(j.r.net, false, note_weights, &at); /* collective if gathered */
    return close_rank_job(&j.r);
}

static outcome run(int ranks, plan p)
{
    train_on_ranks(ranks, train, &p, sizeof p);
    return p.out;
}

static void many_ranks(void **state)
{
    for (int lamb = 0; lamb < 2; lamb++) {
        outcome single = run(1, (plan){.lamb = lamb});
        assert_true(single.loss[0] != single.loss[STEPS - 1]);
        for (int ranks = 2; ranks <= M; ranks += ranks < 4 ? 1 : 4)
            for (int stage = 1; stage <= 3; stage++) {
                outcome o = run(ranks, (plan){.fsdp = true,
                                           .lamb = lamb,
                                           .recorded = stage == 2,
                                           .opts = {.stage = stage}});
                assert_memory_equal(&o, &single, sizeof o);
            }
    }
}

/* Copies of a model, each on some of the ranks; also runs of micro-batches that are several
 * nodes of the tree. */
static void hybrid(void **state)
{
    outcome single = run(1, (plan){.lamb = true});
    static const struct {
        int ranks, shard;
    } cases[] = {{2, 1}, {4, 2}, {4, 4}, {8, 2}, {8, 4}, {4, -1}};
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        choir_fsdp_opts opts = {.stage = 2 + (int)i % 2, .shard_ranks = cases[i].shard};
        outcome o = run(cases[i].ranks, (plan){.fsdp = true, .lamb = true, .opts = opts});
        assert_memory_equal(&o, &single, sizeof o);
    }
}

static void units(void **state)
{
    outcome single = run(1, (plan){.lamb = false});
    plan plans[] = {{.opts = {.unit_class = "linear"}}, {.opts = {.unit_params = 100}},
        {.opts = {.unit_params = 1 << 30}}, {.mark = true}};
    for (size_t i = 0; i < CHOIR_COUNT(plans); i++) {
        plans[i].fsdp = true;
        plans[i].opts.stage = 3;
        outcome o = run(2, plans[i]);
        assert_memory_equal(&o, &single, sizeof o);
    }
}

/* In every stage, by both kinds of norms, gathered, off-loaded, in copies, and frozen ones. */
static void ignored(void **state)
{
    for (int lamb = 0; lamb < 2; lamb++) {
        outcome single = run(1, (plan){.lamb = lamb});
        choir_fsdp_opts opts[] = {{.stage = 1, .ignored = "*.bias"},
            {.stage = 2, .ignored = "0.weight,5.*", .shard_ranks = 2},
            {.stage = 3, .ignored = "?.0.*"}, {.stage = 3, .gather = true, .ignored = "*bias"},
            {.stage = 3, .offload = true, .ignored = "4.weight,*.bias"}};
        for (size_t i = 0; i < CHOIR_COUNT(opts); i++) {
            outcome o = run(i == 1 ? 4 : 1 + (int)i,
                (plan){.fsdp = true, .lamb = lamb, .recorded = i % 2, .opts = opts[i]});
            assert_memory_equal(&o, &single, sizeof o);
        }
    }
}

/* --- what a rank has --- */

static void check_part(const char *name, choir_tensor *t, void *arg)
{
    const job *j = arg;
    const choir__param *p = t->param;
    int64_t rows = t->shape.dim[0], chunk = (rows + j->r.env.world - 1) / j->r.env.world;
    int64_t lo = chunk * j->r.env.rank < rows ? chunk * j->r.env.rank : rows;
    int64_t n = lo + chunk < rows ? chunk : rows - lo;
    assert_int_equal(p->box_count, 1);
    assert_int_equal(p->boxes->from[0], lo);
    assert_int_equal(p->boxes->size[0], n);
    assert_int_equal(p->local->shape.dim[0], n);
    assert_int_equal(p->local->count * rows, t->count * n);
    if (n)
        assert_ptr_equal(
            choir__data(p->local), (float *)choir__data(t) + lo * (t->count / rows));
}

static void check_state(const char *name, choir_tensor *t, void *arg)
{
    *(int64_t *)arg += t->count;
}

/* 10 rows on 4 ranks are 3, 3, 3, 1; 5 are 2, 2, 1, 0; 1 is 1, 0, 0, 0. */
static int parts(int rank, int world, void *arg)
{
    job j;
    int64_t state = 0, mine = 0;
    open_job(&j, arg);
    choir_module_visit(j.r.net, false, check_part, &j);
    choir_scope *step = choir_step_open(j.r.run, 0);
    choir_check(body(step, &j));
    choir_check(choir_scope_close(step));
    choir__param **params;
    int count;
    params = choir__module_params(j.r.net, &count);
    for (int i = 0; i < count; i++) {
        choir_tensor *g = choir_grad(params[i]->tensor);
        assert_non_null(g);
        assert_memory_equal(&g->shape, &params[i]->local->shape, sizeof g->shape);
        mine += params[i]->local->count;
    }
    free(params);
    choir_optim_visit(j.r.optim, check_state, &state);
    assert_int_equal(state, 2 * mine);
    return close_rank_job(&j.r);
}

/* Ignored parameters are whole, with their gradient and state, and one rank alone may read
 * them. */
static int whole(int rank, int world, void *arg)
{
    job j;
    int count, found = 0;
    float bias[WIDTH];
    open_job(&j, arg);
    choir_scope *step = choir_step_open(j.r.run, 0);
    choir_check(body(step, &j));
    choir_check(choir_scope_close(step));
    choir__param **params = choir__module_params(j.r.net, &count);
    for (int i = 0; i < count; i++)
        if (strstr(params[i]->name, ".0.bias")) {
            assert_ptr_equal(params[i]->local, params[i]->tensor);
            assert_int_equal(choir_grad(params[i]->tensor)->count, WIDTH);
            if (rank == 0)
                choir_check(choir_read(params[i]->tensor, bias, sizeof bias));
            found++;
        }
    assert_int_equal(found, 3);
    free(params);
    return close_rank_job(&j.r);
}

static void rows(void **state)
{
    ok(choir_spawn(4, parts, &(plan){.fsdp = true, .opts = {.stage = 3}}));
    plan p = {.fsdp = true, .opts = {.stage = 3, .gather = true, .ignored = "*.bias"}};
    ok(choir_spawn(3, whole, &p));
}

/* --- wrong input --- */

static void expect(choir_fsdp_opts opts, const char *said)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run_ = choir_run_open(&env, 1);
    choir_fsdp(run_, new_net(run_, false), env.group, opts);
    assert_int_not_equal(choir_scope_status(run_), CHOIR_OK);
    if (!strstr(choir_error_message(), said))
        print_error("%s\n", choir_error_message());
    assert_says(said);
    choir_scope_close(run_);
    choir_env_free(&env);
}

static void wrong(void **state)
{
    expect((choir_fsdp_opts){.stage = 4}, "unknown stage 4");
    expect((choir_fsdp_opts){.stage = 3, .unit_class = "lineal"}, "is a 'lineal'");
    expect((choir_fsdp_opts){.stage = 3, .unit_params = -1}, "units of -1 parameters");
    expect((choir_fsdp_opts){.stage = 3, .shard_ranks = 2}, "in copies of 2 ranks");
    expect((choir_fsdp_opts){.stage = 3, .ignored = "0.*,lineal"}, "name matches 'lineal'");
    expect((choir_fsdp_opts){.stage = 3, .ignored = "*"}, "ignores every parameter");
    choir_env env;
    choir_check(choir_env_init(&env));
    choir_scope *run_ = choir_run_open(&env, 1);
    choir_module *net = choir_ddp(run_, new_net(run_, false), env.group, choir_ddp_defaults());
    choir_fsdp(run_, net, env.group, choir_fsdp_defaults());
    assert_fails(choir_scope_status(run_), CHOIR_ERR_STATE, "another strategy");
    choir_scope_close(run_);
    choir_env_free(&env);
}

/* A pool too small for a shard of the weights gives an error; a pool too small for the whole
 * model may still hold a shard. */
static void capped(void **state)
{
    for (int fits = 0; fits < 2; fits++) {
        choir_env env;
        choir_check(choir_env_init(&env));
        choir_scope *run_ = choir_run_open(&env, 1);
        choir_module *net = new_net(run_, false);
        choir_device_stats stats;
        choir_device_get_stats(env.device, &stats);
        choir_device_set_limit(env.device, stats.bytes_reserved + (fits ? 1 << 20 : 64));
        choir_fsdp(run_, net, env.group, choir_fsdp_defaults());
        assert_int_equal(choir_scope_status(run_), fits ? CHOIR_OK : CHOIR_ERR_MEMORY);
        choir_scope_close(run_);
        choir_device_set_limit(env.device, 0);
        choir_device_stats after;
        choir_device_get_stats(env.device, &after);
        assert_true(after.bytes_now <= stats.bytes_now);
        choir_env_free(&env);
    }
}

/* --- ranks that compute for each other --- */

enum { WORDS = 40, TABLE = WORDS * WIDTH };

static choir_tensor *loss_of_words(choir_scope *micro, choir_module *net, void *arg)
{
    int64_t ids[4];
    for (int64_t i = 0; i < 4; i++)
        ids[i] = (micro->micro * 4 + i * 7) % WORDS;
    choir_tensor *y = choir_forward(net, choir_from(micro, CHOIR_I64, choir_dims(4), ids));
    return choir_mean(choir_mul(y, y));
}

/* Computes the gradients of a step, and stores the places of this rank's sums: of a table,
 * whose gradients are rows, and of the others. */
static void places_of_sums(job *j, const choir__fsdp *f, const void *at[2], float *sums)
{
    const choir__book *book = f->params[0]->book;
    choir_scope *step = choir_step_open(j->r.run, 0);
    choir_check(run_micro_batches(step, (micro_batches){j->r.first, j->r.count, loss_of_words,
                                            j->r.net, j, j->r.losses, NULL}));
    choir_check(choir__book_finish(f->params[0]->book));
    choir_check(choir_device_sync(j->r.env.device));
    at[0] = book->sums;
    at[1] = f->params[0]->dense->data;
    memcpy(sums, at[1], (size_t)f->params[0]->local->count * sizeof *sums);
    choir_check(choir_scope_close(step));
}

/* No other rank has a rank's sums. So two computations of them have memory of their own, or a
 * bit that is stuck would be in both. */
static int turn(int rank, int world, void *arg)
{
    enum { TIMES = 4 };
    static float sums[TIMES][TABLE];
    const void *at[TIMES][2];
    choir_group *turned;
    job j = {0};
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.offload = *(const bool *)arg;
    j.r = open_rank_job(M, 7);
    j.r.net = choir_nn_sequential(j.r.run,
        choir_nn_embedding(j.r.run, WORDS, WIDTH, choir_init_normal(0, 1)),
        choir_nn_linear(j.r.run, WIDTH, 5));
    j.r.net = choir_fsdp(j.r.run, j.r.net, j.r.env.group, opts);
    choir_check(choir_scope_status(j.r.run));
    const choir__fsdp *f = (const choir__fsdp *)j.r.net;
    choir_check(choir_group_split(j.r.env.group, 0, (rank + 1) % world, &turned));
    for (int k = 0; k < TIMES; k++) {
        bool away = k % 2 == 0;
        choir_check(choir__strategies_ranks_turned(
            j.r.run, away ? turned : j.r.env.group, away, k ? 0 : CHOIR__NO_STEP));
        j.r.first = (away ? (rank + 1) % world : rank) * j.r.count;
        places_of_sums(&j, f, at[k], sums[k]);
        CHECK(memcmp(sums[k], sums[0], sizeof sums[0]) == 0);
        CHECK(!k || (at[k][0] != at[k - 1][0] && at[k][1] != at[k - 1][1]));
    }
    choir_group_free(turned);
    return close_rank_job(&j.r);
}

static void turned(void **state)
{
    static bool offload[] = {false, true};
    for (size_t i = 0; i < CHOIR_COUNT(offload); i++)
        if (choir_spawn(2, turn, &offload[i]) != CHOIR_OK)
            fail_msg("%s", choir_error_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_ranks), cmocka_unit_test(hybrid),
        cmocka_unit_test(units), cmocka_unit_test(ignored), cmocka_unit_test(rows),
        cmocka_unit_test(wrong), cmocka_unit_test(capped), cmocka_unit_test(turned)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
