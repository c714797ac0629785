/* Collectives that gradients pass through: values and gradients beside those that one rank
 * computes from the data of all, the same bits with every engine; differences of the sum of all
 * losses; a loss over all ranks' data under DDP, recorded and recomputed; refusals. */
#include <math.h>

#include "base/base.h"
#include "base/half.h"
#include "job_fixture.h"
#include "multi/ranks.h"
#include "tensor/tensor.h"

enum { SIDE = 12, ALL = SIDE * SIDE, MOST = 4 }; /* 2, 3 and 4 ranks divide SIDE */

typedef enum kind { GATHER, SCATTER, REDUCE, BROADCAST, EXCHANGE } kind;

typedef struct op_case {
    kind kind;
    int dim; /* broadcast: the root */
    choir_reduce_op op;
} op_case;

static const op_case cases[] = {
    {GATHER, 0, CHOIR_SUM},
    {GATHER, 1, CHOIR_SUM},
    {SCATTER, 0, CHOIR_SUM},
    {SCATTER, 1, CHOIR_MEAN},
    {REDUCE, 0, CHOIR_SUM},
    {REDUCE, 0, CHOIR_MEAN},
    {BROADCAST, 1, CHOIR_SUM},
    {EXCHANGE, 0, CHOIR_SUM},
};

static choir_tensor *apply(const op_case *c, choir_tensor *x, choir_group *group)
{
    switch (c->kind) {
    case GATHER: return choir_nn_all_gather(x, group, c->dim - 2);
    case SCATTER: return choir_nn_reduce_scatter(x, group, c->op, c->dim);
    case REDUCE: return choir_nn_all_reduce(x, group, c->op);
    case BROADCAST: return choir_nn_broadcast(x, group, c->dim);
    case EXCHANGE: return choir_nn_all_to_all(x, group);
    }
    return NULL;
}

/* --- one rank that holds everything --- */

/* Fixed numbers whose sums round; rank's x is number(rank, i), its weights number(rank + 9, i).
 */
static float number(int rank, int i)
{
    uint32_t h = ((uint32_t)(rank * 1000 + i) ^ 61) * 0x9E3779B1u;
    h = (h ^ h >> 15) * 0x85EBCA77u;
    return (float)(h >> 8) / (float)(1 << 23) - 1;
}

/* Returns the sum over ranks in the group's tree. */
static float tree_sum(const float *v, int n)
{
    int left = 1;
    if (n == 1)
        return v[0];
    while (2 * left < n)
        left *= 2;
    return tree_sum(v, left) + tree_sum(v + left, n - left);
}

static float summed(int first, int i, int world, choir_reduce_op op)
{
    float v[MOST];
    for (int r = 0; r < world; r++)
        v[r] = number(first + r, i);
    float sum = tree_sum(v, world);
    return op == CHOIR_MEAN ? sum * (1 / (float)world) : sum;
}

static int width_of(const op_case *c, int world) /* columns of the result */
{
    return c->kind == GATHER && c->dim    ? SIDE * world
           : c->kind == SCATTER && c->dim ? SIDE / world
                                          : SIDE;
}

static int height_of(const op_case *c, int world)
{
    return c->kind == GATHER && !c->dim    ? SIDE * world
           : c->kind == SCATTER && !c->dim ? SIDE / world
                                           : SIDE;
}

/* Returns element i of the rank's result. */
static float result_at(const op_case *c, int rank, int world, int i)
{
    int width = width_of(c, world), row = i / width, col = i % width, part = SIDE / world;
    switch (c->kind) {
    case GATHER:
        return c->dim ? number(col / SIDE, row * SIDE + col % SIDE)
                      : number(row / SIDE, row % SIDE * SIDE + col);
    case SCATTER:
        row += c->dim ? 0 : rank * part;
        col += c->dim ? rank * part : 0;
        return summed(0, row * SIDE + col, world, c->op);
    case REDUCE: return summed(0, i, world, c->op);
    case BROADCAST: return number(c->dim, i);
    case EXCHANGE: return number(row / part, (rank * part + row % part) * SIDE + col);
    }
    return NAN;
}

/* Returns element i of the gradient of the rank's x, if the gradient of rank r's result is
 * number(9 + r, .). */
static float slope_at(const op_case *c, int rank, int world, int i)
{
    int row = i / SIDE, col = i % SIDE, part = SIDE / world;
    switch (c->kind) {
    case GATHER:
        return c->dim ? summed(9, row * SIDE * world + rank * SIDE + col, world, CHOIR_SUM)
                      : summed(9, (rank * SIDE + row) * SIDE + col, world, CHOIR_SUM);
    case SCATTER: {
        float g = c->dim ? number(9 + col / part, row * part + col % part)
                         : number(9 + row / part, row % part * SIDE + col);
        return c->op == CHOIR_MEAN ? g * (1 / (float)world) : g;
    }
    case REDUCE: return summed(9, i, world, c->op);
    case BROADCAST: return rank == c->dim ? summed(9, i, world, CHOIR_SUM) : 0;
    case EXCHANGE: return number(9 + row / part, (rank * part + row % part) * SIDE + col);
    }
    return NAN;
}

static choir_tensor *numbers(choir_scope *s, int rank, choir_shape shape)
{
    float values[ALL * MOST];
    for (int i = 0; i < (int)(shape.dim[0] * shape.dim[1]); i++)
        values[i] = number(rank, i);
    return choir_from(s, CHOIR_F32, shape, values);
}

static int beside_one_rank(choir_scope *s, const choir_env *env)
{
    float y[ALL * MOST], g[ALL];
    for (size_t n = 0; n < CHOIR_COUNT(cases); n++) {
        const op_case *c = &cases[n];
        int count = width_of(c, env->world) * height_of(c, env->world);
        choir_shape shape = choir_dims(height_of(c, env->world), width_of(c, env->world));
        choir_tensor *x = choir_require_grad(numbers(s, env->rank, choir_dims(SIDE, SIDE)));
        choir_tensor *out = apply(c, x, env->group), *kept = choir_keep(s, out);
        choir_tensor *loss = choir_sum(choir_mul(out, numbers(s, 9 + env->rank, shape)));
        CHECK_OK(choir_backward(loss));
        CHECK_OK(choir_read(kept, y, (size_t)count * sizeof *y));
        CHECK_OK(choir_read(choir_grad(x), g, sizeof g));
        for (int i = 0; i < count; i++)
            CHECK(y[i] == result_at(c, env->rank, env->world, i));
        for (int i = 0; i < ALL; i++)
            CHECK(g[i] == slope_at(c, env->rank, env->world, i));
    }
    return 0;
}

/* --- differences --- */

/* The sum of all ranks' losses; x (f64) plus `step` at element i on rank `where`. */
static double total(choir_scope *s, const choir_env *env, const op_case *c, const double *x,
    int where, int i, double step, choir_tensor **leaf)
{
    double moved[ALL];
    memcpy(moved, x, sizeof moved);
    if (where == env->rank)
        moved[i] += step;
    choir_tensor *t =
        choir_require_grad(choir_from(s, CHOIR_F64, choir_dims(SIDE, SIDE), moved));
    choir_tensor *y = choir_tanh(apply(c, t, env->group));
    choir_tensor *loss = choir_sum(choir_scale(choir_mul(y, y), env->rank + 1));
    double value = choir_item(loss);
    if (choir_group_all_reduce(env->group, &value, 1, CHOIR_F64, CHOIR_SUM, NULL) != CHOIR_OK)
        return NAN;
    if (leaf) {
        *leaf = t;
        choir_check(choir_backward(loss));
    }
    return value;
}

static int differences(choir_scope *s, const choir_env *env)
{
    double x[ALL], g[ALL], eps = 1e-5;
    for (int i = 0; i < ALL; i++)
        x[i] = (double)number(env->rank, i);
    for (size_t n = 0; n < CHOIR_COUNT(cases); n++) {
        choir_tensor *leaf = NULL;
        total(s, env, &cases[n], x, -1, 0, 0, &leaf);
        CHECK_OK(choir_read(choir_grad(leaf), g, sizeof g));
        for (int k = 0; k < 2 * env->world; k++) {
            int where = k % env->world, i = (17 + 61 * k) % ALL;
            double up = total(s, env, &cases[n], x, where, i, eps, NULL);
            double down = total(s, env, &cases[n], x, where, i, -eps, NULL);
            CHECK(where != env->rank || fabs((up - down) / (2 * eps) - g[i]) < 1e-7);
        }
    }
    return 0;
}

/* --- 16 bits: added in f32 through the whole tree, and rounded once --- */

static float rounded(float x)
{
    return choir__f32_from_bf16(choir__bf16_from_f32(x));
}

static float rounded_sum(int first, int i, int world)
{
    float v[MOST];
    for (int r = 0; r < world; r++)
        v[r] = rounded(number(first + r, i));
    return rounded(tree_sum(v, world));
}

static int sixteen_bits(choir_scope *s, const choir_env *env)
{
    float y[ALL], g[ALL];
    int world = env->world, part = ALL / world;
    choir_tensor *x = choir_require_grad(numbers(s, env->rank, choir_dims(SIDE, SIDE)));
    choir_tensor *w = numbers(s, 9 + env->rank, choir_dims(SIDE, SIDE));
    choir_tensor *half = choir_cast(x, CHOIR_BF16);
    choir_tensor *sum = choir_nn_all_reduce(half, env->group, CHOIR_SUM);
    CHECK(choir_tensor_dtype(sum) == CHOIR_BF16);
    sum = choir_cast(sum, CHOIR_F32);
    choir_tensor *kept = choir_keep(s, sum);
    CHECK_OK(choir_backward(choir_sum(choir_mul(sum, w))));
    CHECK_OK(choir_read(kept, y, sizeof y));
    CHECK_OK(choir_read(choir_grad(x), g, sizeof g));
    for (int i = 0; i < ALL; i++)
        CHECK(y[i] == rounded_sum(0, i, world) && g[i] == rounded_sum(9, i, world));

    x = choir_require_grad(numbers(s, env->rank, choir_dims(SIDE, SIDE)));
    choir_tensor *mean =
        choir_nn_reduce_scatter(choir_cast(x, CHOIR_BF16), env->group, CHOIR_MEAN, 0);
    w = numbers(s, 9 + env->rank, choir_dims(SIDE / world, SIDE));
    CHECK_OK(choir_backward(choir_sum(choir_mul(choir_cast(mean, CHOIR_F32), w))));
    CHECK_OK(choir_read(choir_grad(x), g, sizeof g));
    for (int i = 0; i < ALL; i++) {
        float own = rounded(number(9 + i / part, i % part));
        CHECK(fabsf(g[i] - own / (float)world) <= 0x1p-7f * fabsf(own));
    }
    return 0;
}

/* --- a group of one, integers, refusals --- */

static int others(choir_scope *s, const choir_env *env)
{
    choir_tensor *x = numbers(s, 0, choir_dims(SIDE, SIDE));
    if (env->world == 1) {
        for (size_t n = 0; n < CHOIR_COUNT(cases); n++)
            CHECK(cases[n].kind == BROADCAST || apply(&cases[n], x, env->group) == x);
        return 0;
    }
    int64_t id[2] = {env->rank, 7}, ids[2 * MOST];
    choir_tensor *all =
        choir_nn_all_gather(choir_from(s, CHOIR_I64, choir_dims(2), id), env->group, 0);
    CHECK_OK(choir_read(all, ids, (size_t)env->world * sizeof id));
    for (int r = 0; r < env->world; r++)
        CHECK(ids[2 * r] == r && ids[2 * r + 1] == 7);

    CHECK(choir_nn_all_reduce(all, env->group, CHOIR_SUM)->poisoned);
    CHECK(choir_scope_status(s) == CHOIR_ERR_DTYPE);
    choir_scope_clear(s);
    CHECK(choir_nn_all_reduce(x, env->group, CHOIR_MAX)->poisoned);
    CHECK(strstr(choir_error_message(), "expected CHOIR_SUM or CHOIR_MEAN"));
    choir_scope_clear(s);
    CHECK(choir_nn_broadcast(x, env->group, env->world)->poisoned);
    CHECK(strstr(choir_error_message(), "broadcast: expected a rank from 0 to"));
    choir_scope_clear(s);
    CHECK(choir_nn_all_gather(choir_sum(x), env->group, 0)->poisoned);
    choir_scope_clear(s);
    choir_tensor *odd = numbers(s, 0, choir_dims(env->world + 1, 1));
    CHECK(choir_nn_all_to_all(odd, env->group)->poisoned);
    CHECK(strstr(choir_error_message(), "all_to_all: dimension 0 of ("));
    choir_scope_clear(s);
    CHECK(choir_nn_reduce_scatter(odd, env->group, CHOIR_SUM, -2)->poisoned);
    choir_scope_clear(s);
    return beside_one_rank(s, env); /* the group goes on */
}

static int run(int rank, int world, void *arg)
{
    typedef int part(choir_scope * s, const choir_env *env);
    static part *const parts[] = {beside_one_rank, differences, sixteen_bits, others};
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++) {
        choir_scope *run = choir_run_open(&env, 1), *s = choir_step_open(run, 0);
        if (world > 1 || parts[i] == others)
            CHECK(parts[i](s, &env) == 0);
        CHECK_OK(choir_scope_close(s));
        CHECK_OK(choir_scope_close(run));
    }
    choir_env_free(&env);
    return 0;
}

static void values_and_gradients(void **state)
{
    for (int world = 1; world <= MOST; world++)
        ok(choir_spawn(world, run, NULL));
}

static void over_ucx(void **state)
{
    use_ucx();
    ok(choir_spawn(3, run, NULL));
    unsetenv("CHOIR_BACKEND");
}

/* --- under DDP: the gradient of one rank with the whole batch --- */

enum { ROWS = 12, IN = 6, OUT = 5, STEPS = 5 };

typedef struct plan {
    bool recorded, recompute;
    int world;
    float *weights; /* (OUT * IN) of the last step, in shared memory */
} plan;

typedef struct job {
    choir_group *group;
    choir_module *net;
    choir_optim *optim;
    choir_tensor *x; /* this rank's rows (ROWS / world, IN) */
} job;

static choir_status body(choir_scope *s, void *arg)
{
    job *j = arg;
    choir_tensor *mine = choir_forward(j->net, choir_in(s, j->x));
    choir_tensor *all = choir_nn_all_gather(mine, j->group, 0); /* (ROWS, OUT) */
    choir_tensor *centre =
        choir_nn_all_reduce(choir_mean_dim(mine, 0), j->group, CHOIR_MEAN); /* of all rows */
    choir_tensor *scores = choir_matmul(choir_sub(mine, centre), choir_transpose(all, 0, 1));
    choir_status status = choir_backward(choir_mean(choir_tanh(scores)));
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static int train(int rank, int world, void *arg)
{
    const plan *p = arg;
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 3);
    choir_module *net = choir_nn_linear_with(run, IN, OUT, false, choir_init_normal(0, 0.5));
    net = choir_nn_sequential(run, net, choir_nn_tanh(run));
    choir_module_recompute(net, p->recompute);
    job j = {.group = env.group,
        .net = choir_ddp(run, net, env.group, choir_ddp_defaults()),
        .x = choir_in(run, numbers(run, rank, choir_dims(ROWS / world, IN)))};
    float rows[ROWS * IN];
    for (int i = 0; i < ROWS * IN; i++)
        rows[i] = number(50, i);
    CHECK_OK(choir_write(
        j.x, rows + rank * ROWS / world * IN, (size_t)(ROWS / world * IN) * sizeof *rows));
    j.optim = choir_sgd(run, j.net, (choir_sgd_opts){.lr = 0.5f});
    for (int i = 0; i < STEPS; i++)
        CHECK_OK(run_step(run, p->recorded, i, body, &j));
    if (rank == 0)
        CHECK_OK(choir_read(
            choir_module_find(net, "0.weight"), p->weights, OUT * IN * sizeof *p->weights));
    CHECK_OK(choir_scope_close(run));
    choir_env_free(&env);
    return 0;
}

static void under_ddp(void **state)
{
    enum { N = OUT * IN };
    float one[N], *now = shared_memory(N * sizeof *now);
    for (int world = 1; world <= 4; world++) {
        float plain[N] = {0};
        for (int how = 0; how < 3; how++) {
            plan p = {.recorded = how == 1, .recompute = how == 2, .weights = now};
            ok(choir_spawn(world, train, &p));
            if (how == 0)
                memcpy(plain, now, sizeof plain);
            assert_memory_equal(plain, now, sizeof plain);
        }
        if (world == 1)
            memcpy(one, plain, sizeof one);
        for (int i = 0; i < N; i++)
            assert_true(fabsf(plain[i] - one[i]) < 1e-5f);
    }
    munmap(now, N * sizeof *now);
}

/* --- ranks that disagree --- */

/* Ranks whose tensors have equally many elements and another shape, or do not all require a
 * gradient: every rank gets the sentence. */
static int disagree(int rank, int world, void *arg)
{
    bool gradients = *(const bool *)arg;
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    choir_scope *run = choir_run_open(&env, 1), *s = choir_step_open(run, 0);
    choir_tensor *x =
        numbers(s, rank, !gradients && rank == 1 ? choir_dims(4, 6) : choir_dims(6, 4));
    if (!gradients || rank == 1)
        choir_require_grad(x);
    choir_tensor *y = choir_nn_all_gather(x, env.group, 0);
    float values[24 * MOST];
    choir_status status = choir_read(y, values, sizeof values / MOST * 2);
    CHECK(status == CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), "all_gather of 24 f32, a tensor with"));
    CHECK(!gradients || strstr(choir_error_message(), "without gradient"));
    choir_scope_close(s);
    choir_scope_close(run);
    choir_env_free(&env);
    return 0;
}

static void ranks_that_disagree(void **state)
{
    for (int gradients = 0; gradients < 2; gradients++)
        ok(choir_spawn(2, disagree, &(bool){gradients}));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "10", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(over_ucx),
        cmocka_unit_test(under_ddp),
        cmocka_unit_test(ranks_that_disagree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
