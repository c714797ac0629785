/* Gradient checks: f64 leaves in a step, and a weighted sum of a result. Central differences in
 * f64 run the reference kernels. Each check also makes the op recompute its result. */
#ifndef CHOIR_GRADCHECK_FIXTURE_H
#define CHOIR_GRADCHECK_FIXTURE_H

#include <math.h>
#include <stdio.h>

#include <choir/autograd.h>

#include "again_fixture.h"
#include "sample.h"
#include "scopes_fixture.h"

/* Returns normal f64 values, or uniform ones in [0.5, 2) if positive. */
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

/* Returns a weighted sum, so that every element of y has a different gradient. */
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

/* --- along random directions: f(x + t d) by t, where a check of every entry takes too long ---
 */

enum { DIRECTIONS = 3 };

typedef struct along {
    choir_check_fn *f;
    choir_tensor **in;                      /* x */
    choir_tensor *direction[CHOIR__MAX_IN]; /* d; NULL: the input is passed on as it is */
    int count;
    void *arg;
} along;

static inline choir_tensor *apply_along(choir_tensor *const *t, int count, void *arg)
{
    const along *a = (along *)arg;
    choir_tensor *in[CHOIR__MAX_IN];
    for (int i = 0, k = 0; i < a->count; i++)
        in[i] = a->direction[i] ? choir_add(a->in[i], choir_mul(a->direction[i], t[k++]))
                                : a->in[i];
    return a->f(in, a->count, a->arg);
}

/* Returns a direction that moves every entry by 0.5 to 1.5 times the step, so that a wrong
 * gradient of one entry shows. */
static inline choir_tensor *random_direction(const choir_tensor *x, uint64_t seed)
{
    double *d = malloc((size_t)(x->count + 1) * sizeof *d);
    for (int64_t i = 0; i < x->count; i++) {
        uint32_t word[4];
        sample_words(seed, word);
        d[i] = (0.5 + (double)choir__unit(word[0])) * (word[1] & 1 ? 1 : -1);
    }
    choir_tensor *t = choir_from(step, CHOIR_F64, choir_tensor_shape(x), d);
    free(d);
    return t;
}

static inline choir_status check_directions(
    choir_check_fn *f, choir_tensor **in, int count, void *arg, uint64_t seed)
{
    choir_status status = CHOIR_OK;
    for (int n = 0; n < DIRECTIONS && status == CHOIR_OK; n++) {
        along a = {.f = f, .in = in, .count = count, .arg = arg};
        choir_tensor *t[CHOIR__MAX_IN];
        int moved = 0;
        for (int i = 0; i < count; i++) {
            if (!in[i]->requires_grad)
                continue;
            a.direction[i] = random_direction(in[i], seed);
            t[moved++] = choir_require_grad(choir_full(step, CHOIR_F64, (choir_shape){0}, 0));
        }
        status = choir_gradcheck(apply_along, t, moved, &a, 1e-6);
    }
    return status;
}

/* --- a check --- */

static inline void check(choir_check_fn *f, choir_tensor **in, int count, void *arg)
{
    uint64_t seed;
    choir_status status = sampling(&seed) ? check_directions(f, in, count, arg, seed)
                                          : choir_gradcheck(f, in, count, arg, 1e-6);
    if (status != CHOIR_OK)
        print_error("%s\n", choir_error_message());
    ok(status);
    check_again(f, in, count, arg);
}

/* Asserts that an op was refused with this error, which its scope then forgets. */
static inline void assert_refused(choir_tensor *y, choir_status status, const char *words)
{
    choir_scope *s = choir_tensor_scope(y);
    assert_fails(choir_scope_status(s), status, words);
    choir_scope_clear(s);
}

/* Asserts that t has these n values; NaN is equal to NaN. */
static inline void assert_values(choir_tensor *t, const double *expected, int64_t n)
{
    double y[64];
    t = choir_cast(t, CHOIR_F64);
    assert_int_equal(choir_tensor_count(t), n);
    choir_check(choir_read(choir_contiguous(t), y, (size_t)n * sizeof *y));
    for (int64_t i = 0; i < n; i++)
        if (!(y[i] == expected[i] || (isnan(y[i]) && isnan(expected[i]))))
            fail_msg("element %lld is %g, not %g", (long long)i, y[i], expected[i]);
}

/* An op of one to three tensors. */
typedef choir_tensor *apply_fn(choir_tensor *const *in);

static inline choir_tensor *apply_op(choir_tensor *const *in, int count, void *arg)
{
    return weigh((*(apply_fn **)arg)(in));
}

static inline void check_op(apply_fn *f, choir_tensor *a, choir_tensor *b, choir_tensor *c)
{
    choir_tensor *in[3] = {a, b, c};
    check(apply_op, in, c ? 3 : b ? 2 : 1, &f);
}

#endif
