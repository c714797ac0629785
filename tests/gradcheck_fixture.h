/* What gradient checks share: f64 leaves in a step, and a weighted sum of a result. Central
 * differences in f64 run the reference kernels. On the way each op makes its result again. */
#ifndef CHOIR_GRADCHECK_FIXTURE_H
#define CHOIR_GRADCHECK_FIXTURE_H

#include <stdio.h>

#include <choir/autograd.h>

#include "again_fixture.h"
#include "scopes_fixture.h"

/* Normal f64 values; uniform in [0.5, 2) when positive is asked for. */
static inline choir_tensor *leaf(choir_shape shape, bool positive)
{
    char name[32];
    static int number;
    snprintf(name, sizeof name, "leaf %d", number++);
    choir_tensor *t =
        positive ? choir_rand(step, shape, name, 0.5, 2) : choir_randn(step, shape, name);
    bool grad = choir_set_grad(step, false);
    t = choir_cast(t, CHOIR_F64);
    choir_set_grad(step, grad);
    return choir_require_grad(t);
}

/* A weighted sum, so that every element of y has a gradient of its own. */
static inline choir_tensor *weigh(choir_tensor *y)
{
    choir_scope *s = choir_tensor_scope(y);
    int64_t n = choir_tensor_count(y);
    double w[512];
    assert_in_range(n, 1, 512);
    for (int64_t i = 0; i < n; i++)
        w[i] = 0.3 + 0.1 * (double)(i * 7 % 11);
    choir_tensor *t = choir_from(s, CHOIR_F64, choir_tensor_shape(y), w);
    return choir_sum(choir_mul(y, t));
}

static inline void check(choir_check_fn *f, choir_tensor **in, int count, void *arg)
{
    choir_status status = choir_gradcheck(f, in, count, arg, 1e-6);
    if (status != CHOIR_OK)
        print_error("%s\n", choir_error_message());
    assert_int_equal(status, CHOIR_OK);
    check_again(f, in, count, arg);
}

#endif
