/* Ops that compare, choose, look up, order and reduce along a dimension: gradients against
 * central differences in f64, values of special cases, and refusals. */
#include <math.h>

#include <choir/ops.h>
#include <choir/select.h>

#include "gradcheck_fixture.h"

static choir_tensor *ids_of(choir_tensor *x, choir_shape shape, const int64_t *ids)
{
    return choir_from(choir_tensor_scope(x), CHOIR_I64, shape, ids);
}

/* --- elementwise --- */

static choir_tensor *waves(choir_tensor *const *in)
{
    return choir_sin(choir_scale(choir_cos(in[0]), 3));
}

static choir_tensor *powers(choir_tensor *const *in)
{
    return choir_add(
        choir_pow(in[0], 1.7), choir_add(choir_pow(in[0], -2), choir_pow(in[0], 2)));
}

static choir_tensor *clamped(choir_tensor *const *in)
{
    return choir_mul(choir_clamp(in[0], -0.5, 0.7), in[0]);
}

static choir_tensor *chosen(choir_tensor *const *in)
{
    choir_tensor *mask = choir_gt(in[0], in[1]); /* (4, 3) */
    return choir_where(choir_logical_not(mask), in[1], in[0]);
}

static choir_tensor *masked(choir_tensor *const *in)
{
    choir_tensor *mask = choir_compare(choir_sum_dim(in[0], 0), CHOIR_LE, 0.1);
    return choir_masked_fill(
        choir_transpose(in[0], 0, 1), choir_reshape(mask, choir_dims(-1, 1)), 2.5);
}

static choir_tensor *bent(choir_tensor *const *in)
{
    choir_tensor *y = choir_leaky_relu(choir_elu(in[0], 0.7), -0.3);
    return choir_add(y, choir_softplus(in[0], 1.5, 2));
}

static choir_tensor *near_zero(choir_tensor *const *in)
{
    return choir_erf(choir_mul(choir_log1p(in[0]), choir_expm1(in[0])));
}

static choir_tensor *stepped(choir_tensor *const *in)
{
    choir_tensor *steps = choir_add(choir_floor(in[0]), choir_ceil(choir_scale(in[0], 2)));
    steps = choir_add(steps, choir_add(choir_sign(in[0]), choir_round(choir_scale(in[0], 3))));
    return choir_mul(steps, in[0]);
}

static choir_tensor *greater_and_less(choir_tensor *const *in)
{
    return choir_mul(choir_maximum(in[0], in[1]), choir_minimum(in[1], choir_sin(in[0])));
}

static void elementwise(void **state)
{
    check_op(bent, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(near_zero, leaf(choir_dims(4, 3), true), NULL, NULL);
    check_op(stepped, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(greater_and_less, leaf(choir_dims(4, 3), false), leaf(choir_dims(3), false), NULL);
    check_op(waves, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(powers, leaf(choir_dims(4, 3), true), NULL, NULL);
    check_op(clamped, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(chosen, leaf(choir_dims(4, 3), false), leaf(choir_dims(3), false), NULL);
    check_op(masked, leaf(choir_dims(4, 3), false), NULL, NULL);
}

/* --- along a dimension --- */

static choir_tensor *extremes(choir_tensor *const *in)
{
    choir_tensor *index, *y = choir_max_dim(in[0], 1, true, &index);
    choir_tensor *picked = choir_gather_dim(in[0], 1, index);
    return choir_add(choir_mul(y, picked), choir_min_dim(in[0], -2, true, NULL));
}

static choir_tensor *extremes_turned(choir_tensor *const *in)
{
    return choir_min_dim(choir_transpose(in[0], 0, 1), 0, false, NULL);
}

static choir_tensor *sums(choir_tensor *const *in)
{
    return choir_add(choir_cumsum(in[0], 0), choir_cumsum(choir_square(in[0]), -1));
}

static choir_tensor *variances(choir_tensor *const *in)
{
    return choir_mul(choir_var_dim(in[0], 1, 1, true), choir_var_dim(in[0], 1, 0, true));
}

static choir_tensor *norms(choir_tensor *const *in)
{
    choir_tensor *a = choir_norm_dim(in[0], 2, 0, false),
                 *b = choir_norm_dim(in[0], 3, 0, false);
    choir_tensor *c = choir_norm_dim(in[0], 1, 0, false);
    choir_tensor *d = choir_norm_dim(in[0], INFINITY, 0, false);
    return choir_add(choir_mul(a, b), choir_mul(c, d));
}

static void along_a_dimension(void **state)
{
    check_op(extremes, leaf(choir_dims(4, 5), false), NULL, NULL);
    check_op(extremes, leaf(choir_dims(2, 4, 3), false), NULL, NULL);
    check_op(extremes_turned, leaf(choir_dims(4, 5, 2), false), NULL, NULL);
    check_op(sums, leaf(choir_dims(4, 5), false), NULL, NULL);
    check_op(variances, leaf(choir_dims(3, 4), false), NULL, NULL);
    check_op(norms, leaf(choir_dims(4, 3), false), NULL, NULL);
}

/* --- lookups --- */

static choir_tensor *gathered(choir_tensor *const *in)
{
    static const int64_t ids[] = {2, 0, 2, 2, 1, 0};
    choir_tensor *a = choir_gather_dim(in[0], 0, ids_of(in[0], choir_dims(2, 3), ids));
    choir_tensor *b = choir_gather_dim(in[0], 1, ids_of(in[0], choir_dims(3, 2), ids));
    return choir_add(a, choir_transpose(b, 0, 1));
}

static choir_tensor *selected(choir_tensor *const *in)
{
    static const int64_t ids[] = {2, 0, 2, 2};
    return choir_index_select(in[0], 1, ids_of(in[0], choir_dims(4), ids));
}

static choir_tensor *scattered(choir_tensor *const *in)
{
    static const int64_t ids[] = {2, 0, 2, 2, 1, 0};
    choir_tensor *index = ids_of(in[0], choir_dims(2, 3), ids);
    return choir_square(choir_scatter_add(in[0], 0, index, in[1]));
}

static choir_tensor *padded(choir_tensor *const *in)
{
    static const int64_t widths[] = {1, 2, -1, 1, 2, -1};
    return choir_square(choir_pad(in[0], widths, 6, 0.5));
}

static void lookups(void **state)
{
    check_op(gathered, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(selected, leaf(choir_dims(2, 3, 2), false), NULL, NULL);
    check_op(scattered, leaf(choir_dims(3, 3), false), leaf(choir_dims(2, 3), false), NULL);
    check_op(padded, leaf(choir_dims(3, 4, 2), false), NULL, NULL);
}

/* --- values --- */

/* NaN comes before all numbers, and the first of equal entries counts. */
static void nan_and_ties(void **state)
{
    static const float x[] = {1, 3, 3, -2, NAN, 5, NAN, 0, -7, 2, -7, 2};
    choir_tensor *t = choir_from(step, CHOIR_F32, choir_dims(3, 4), x), *index;
    assert_values(choir_max_dim(t, 1, false, &index), (double[]){3, NAN, 2}, 3);
    assert_values(index, (double[]){1, 0, 1}, 3);
    assert_values(choir_min_dim(t, -1, false, &index), (double[]){-2, NAN, -7}, 3);
    assert_values(index, (double[]){3, 0, 0}, 3);
    assert_values(choir_argmin_dim(t, 0, true), (double[]){1, 2, 1, 0}, 4);
    assert_values(choir_clamp(t, 0, 2), (double[]){1, 2, 2, 0, NAN, 2, NAN, 0, 0, 2, 0, 2}, 12);
    assert_values(choir_eq(t, t), (double[]){1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1}, 12);
    assert_values(
        choir_compare(t, CHOIR_NE, 2), (double[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 0}, 12);
}

/* The norm of zeros has no gradient, instead of NaN. */
static void norm_of_zeros(void **state)
{
    choir_tensor *x = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2, 3), 0));
    choir_tensor *y = choir_norm_dim(x, 2, 1, false);
    choir_check(choir_backward(choir_sum(y)));
    assert_values(choir_grad(x), (double[6]){0}, 6);
}

static void integers(void **state)
{
    static const int64_t ids[] = {2, 0, 1, 2};
    choir_tensor *t = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    assert_values(choir_one_hot(t, 3), (double[]){0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1}, 12);
    choir_tensor *counts = choir_full(step, CHOIR_I64, choir_dims(3), 0);
    choir_tensor *ones = choir_full(step, CHOIR_I64, choir_dims(4), 1);
    assert_values(choir_scatter_add(counts, 0, t, ones), (double[]){1, 1, 2}, 3);
    assert_values(choir_gather_dim(t, 0, t), (double[]){1, 2, 0, 1}, 4);
    assert_values(choir_index_select(choir_eq(t, choir_gather_dim(t, 0, t)), 0, t),
        (double[]){0, 0, 0, 0}, 4);
}

/* Gradients of 16-bit operands are added in f32. */
static void half_gradients(void **state)
{
    enum { N = 1000 };
    static int64_t ids[N];
    choir_tensor *x = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(2, 1), 0.25));
    choir_tensor *y = choir_index_select(
        choir_cast(x, CHOIR_BF16), 0, choir_from(step, CHOIR_I64, choir_dims(N), ids));
    assert_int_equal(choir_tensor_dtype(y), CHOIR_BF16);
    choir_check(choir_backward(choir_sum(choir_cast(y, CHOIR_F32))));
    assert_values(choir_grad(x), (double[]){N, 0}, 2); /* ones in bf16 would stop at 256 */
}

/* --- refusals --- */

static void refusals(void **state)
{
    static const int64_t ids[] = {2, 0, 7, 2};
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(3, 2), 1);
    choir_tensor *bad = choir_from(step, CHOIR_I64, choir_dims(4), ids);
    assert_refused(choir_max_dim(x, 2, false, NULL), CHOIR_ERR_SHAPE, "no dimension 2");
    assert_refused(choir_eq(x, bad), CHOIR_ERR_DTYPE, "eq: expected two tensors of one dtype");
    assert_refused(choir_where(x, x, x), CHOIR_ERR_DTYPE, "expected a bool mask, got f32");
    assert_refused(choir_gather_dim(x, 0, bad), CHOIR_ERR_SHAPE, "got f32 (3, 2), i64 (4)");
    assert_refused(choir_norm_dim(x, NAN, 0, false), CHOIR_ERR_ARGUMENT, "a number p, got f32");
    assert_refused(choir_clamp(x, NAN, 1), CHOIR_ERR_ARGUMENT, "bounds that are numbers");
    choir_tensor *bytes = choir_full(step, CHOIR_U8, choir_dims(2, 3), 7);
    choir_tensor *mask = choir_full(step, CHOIR_BOOL, choir_dims(2, 3), 2);
    assert_refused(choir_masked_fill(bytes, mask, 300), CHOIR_ERR_ARGUMENT,
        "a value that u8 can hold, got 300");
    assert_refused(choir_masked_fill(bytes, mask, NAN), CHOIR_ERR_ARGUMENT, "got nan");
    assert_refused(
        choir_pad(bytes, (int64_t[]){1, 1}, 2, -1), CHOIR_ERR_ARGUMENT, "u8 can hold");
    assert_refused(choir_full(step, CHOIR_I64, choir_dims(1), 1e19), CHOIR_ERR_ARGUMENT, "i64");
    assert_refused(choir_pad(x, (int64_t[]){0, -3}, 2, 0), CHOIR_ERR_SHAPE, "cannot lose 3");
    assert_refused(choir_pad(x, (int64_t[]){0}, 1, 0), CHOIR_ERR_ARGUMENT, "got 1 widths");
    choir_tensor *y = choir_index_select(x, 0, bad);
    float values[8];
    assert_fails(choir_read(y, values, sizeof values), CHOIR_ERR_RANGE,
        "index_select: index 7 at position 2 is outside [0, 3)");
    choir_scope_clear(step);
    y = choir_one_hot(bad, 3);
    int64_t ones[12];
    assert_fails(
        choir_read(y, ones, sizeof ones), CHOIR_ERR_RANGE, "one_hot: index 7 at position 2");
    choir_scope_clear(step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(elementwise),
        IN_SCOPES(along_a_dimension),
        IN_SCOPES(lookups),
        IN_SCOPES(nan_and_ties),
        IN_SCOPES(norm_of_zeros),
        IN_SCOPES(integers),
        IN_SCOPES(half_gradients),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("selecting ops", tests, NULL, NULL);
}
