/* Collectives on tensors: they give the right values, in order with the device's work before
 * and after them, without blocking the host. Invalid calls are refused. */
#include <stdlib.h>
#include <choir/choir.h>

#include "check.h"
#include "base/base.h"
#include "multi/ranks.h"

/* x (rows, 3): 100 * rank + index */
static choir_tensor *numbered(choir_scope *s, int rank, int64_t rows)
{
    float values[96];
    for (int64_t i = 0; i < 3 * rows; i++)
        values[i] = (float)(100 * rank + i);
    return choir_from(s, CHOIR_F32, choir_dims(rows, 3), values);
}

static int in_place(choir_scope *s, const choir_env *env)
{
    float got[6];
    int world = env->world;
    choir_tensor *x = choir_scale(numbered(s, env->rank, 2), 2);
    CHECK_OK(choir_all_reduce(x, env->group, CHOIR_SUM));
    choir_tensor *y = choir_add(
        x, choir_full(s, CHOIR_F32, choir_dims(2, 3), 1)); /* after the sum, without a wait */
    CHECK_OK(choir_read(y, got, sizeof got));
    for (int i = 0; i < 6; i++)
        CHECK(got[i] == (float)(100 * world * (world - 1) + 2 * world * i + 1));
    choir_tensor *z = numbered(s, env->rank, 2);
    CHECK_OK(choir_broadcast(z, env->group, world - 1));
    CHECK_OK(choir_read(z, got, sizeof got));
    for (int i = 0; i < 6; i++)
        CHECK(got[i] == (float)(100 * (world - 1) + i));
    return 0;
}

static int new_tensors(choir_scope *s, const choir_env *env)
{
    float got[96];
    int world = env->world, rank = env->rank;
    choir_tensor *all = choir_all_gather(numbered(s, rank, 2), env->group);
    CHECK(choir_tensor_size(all, 0) == 2 * world && choir_tensor_size(all, 1) == 3);
    CHECK_OK(choir_read(all, got, (size_t)world * 6 * sizeof *got));
    for (int r = 0; r < world; r++)
        for (int i = 0; i < 6; i++)
            CHECK(got[6 * r + i] == (float)(100 * r + i));

    choir_tensor *part =
        choir_reduce_scatter(numbered(s, rank, 2 * world), env->group, CHOIR_MEAN);
    CHECK(choir_tensor_size(part, 0) == 2);
    CHECK_OK(choir_read(part, got, 6 * sizeof *got));
    for (int i = 0; i < 6; i++)
        CHECK(got[i] == (float)(50 * (world - 1) + 6 * rank + i));

    choir_tensor *swapped = choir_all_to_all(numbered(s, rank, world), env->group);
    CHECK(choir_tensor_size(swapped, 0) == world);
    CHECK_OK(choir_read(swapped, got, (size_t)world * 3 * sizeof *got));
    for (int r = 0; r < world; r++)
        for (int i = 0; i < 3; i++)
            CHECK(got[3 * r + i] == (float)(100 * r + 3 * rank + i));
    return 0;
}

static int refused(choir_scope *s, const choir_env *env)
{
    choir_tensor *x = numbered(s, 0, 4);
    CHECK(choir_all_reduce(choir_narrow(x, 1, 0, 2), env->group, CHOIR_SUM) == CHOIR_ERR_SHAPE);
    CHECK(strstr(choir_error_message(), "choir_contiguous"));
    CHECK(choir_all_reduce(x, env->group, CHOIR_BOR) == CHOIR_ERR_DTYPE);
    CHECK(choir_broadcast(x, env->group, env->world) == CHOIR_ERR_ARGUMENT);
    CHECK_OK(choir_scope_status(s));
    if (env->world > 1) {
        choir_tensor *y = choir_reduce_scatter(numbered(s, 0, 1), env->group, CHOIR_SUM);
        CHECK(choir_all_reduce(y, env->group, CHOIR_SUM) == CHOIR_ERR_SCOPE);
        CHECK(choir_scope_status(s) == CHOIR_ERR_SHAPE);
        CHECK(strstr(choir_error_message(), "the number of ranks"));
    }
    return 0;
}

/* A tensor that backward needs must not be overwritten by a collective. */
static int saved(choir_scope *s, const choir_env *env)
{
    choir_tensor *w = choir_require_grad(numbered(s, 0, 2));
    choir_tensor *x = choir_scale(numbered(s, 0, 2), 1);
    choir_tensor *loss = choir_sum(choir_mul(w, x));
    CHECK_OK(choir_all_reduce(x, env->group, CHOIR_SUM));
    CHECK(choir_backward(loss) != CHOIR_OK);
    return 0;
}

static int run(int rank, int world, void *arg)
{
    typedef int part(choir_scope * s, const choir_env *env);
    static part *const parts[] = {in_place, new_tensors, refused, saved};
    choir_env env;
    CHECK_OK(choir_env_init(&env));
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++) {
        choir_scope *s = choir_run_open(&env, 1);
        CHECK(parts[i](s, &env) == 0);
        choir_scope_close(s);
    }
    choir_env_free(&env);
    return 0;
}

static void test_tensors(void **state)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < CHOIR_COUNT(worlds); i++)
        ok(choir_spawn(worlds[i], run, NULL));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "10", 1); /* a device that belongs to no rank */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
