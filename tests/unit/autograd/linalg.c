/* Linear algebra: factors multiply to their matrix, gradients equal central differences, and
 * wrong operands are refused. */
#include <math.h>

#include <choir/linalg.h>
#include <choir/select.h>

#include "gradcheck_fixture.h"

static choir_tensor *turned(choir_tensor *x)
{
    return choir_transpose(x, -1, -2);
}

/* Returns x x' + 1/2: symmetric and positive definite. */
static choir_tensor *definite(choir_tensor *x)
{
    choir_shape s = choir_tensor_shape(x);
    choir_tensor *one =
        choir_expand(choir_full(step, choir_tensor_dtype(x), choir_dims(1), 0.5),
            choir_dims(s.dim[s.ndim - 2], s.dim[s.ndim - 2]));
    return choir_add(choir_matmul(x, turned(x)), choir_tril(choir_triu(one, 0), 0));
}

/* --- values --- */

/* Asserts that a and b differ by at most `bound` times b's length. */
static void assert_near(choir_tensor *a, choir_tensor *b, double bound)
{
    a = choir_cast(a, CHOIR_F64), b = choir_cast(b, CHOIR_F64);
    double off = choir_item(choir_sum(choir_square(choir_sub(a, b))));
    double all = choir_item(choir_sum(choir_square(b)));
    if (!(off <= bound * bound * all))
        fail_msg("off by %g of %g", sqrt(off), sqrt(all));
}

static void assert_orthonormal(choir_tensor *q, double bound)
{
    int64_t n = choir_tensor_size(q, -1);
    choir_tensor *one = choir_expand(
        choir_full(step, choir_tensor_dtype(q), choir_dims(1), 1), choir_dims(n, n));
    choir_tensor *identity = choir_tril(choir_triu(one, 0), 0);
    choir_tensor *product = choir_matmul(turned(q), q);
    assert_near(product, choir_expand(identity, choir_tensor_shape(product)), bound);
}

static void check_svd(choir_tensor *x, double bound)
{
    choir_tensor *u, *vt, *s = choir_svd(x, &u, &vt);
    choir_shape row = choir_tensor_shape(s);
    row.dim[row.ndim] = row.dim[row.ndim - 1];
    row.dim[row.ndim++ - 1] = 1;
    ok(choir_scope_status(step));
    assert_near(choir_matmul(choir_mul(u, choir_reshape(s, row)), vt), x, bound);
    assert_orthonormal(u, bound);
    assert_orthonormal(turned(vt), bound);
    choir_tensor *rise = choir_sub(choir_narrow(s, -1, 1, choir_tensor_size(s, -1) - 1),
        choir_narrow(s, -1, 0, choir_tensor_size(s, -1) - 1));
    if (choir_tensor_count(rise))
        assert_true(choir_item(choir_sum(choir_relu(rise))) == 0);
}

static void factors(void **state)
{
    static const choir_shape shapes[] = {{2, {1, 1}}, {2, {5, 3}}, {2, {3, 5}}, {3, {4, 6, 6}},
        {2, {70, 20}}, {2, {1, 9}}, {4, {2, 1, 3, 2}}};
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++)
        for (int wide = 0; wide < 2; wide++) {
            choir_dtype dtype = wide ? CHOIR_F64 : CHOIR_F32;
            double bound = wide ? 1e-13 : 1e-5;
            choir_tensor *x = choir_cast(choir_randn(step, shapes[i], "x"), dtype);
            check_svd(x, bound);
            choir_tensor *a = definite(x), *l = choir_cholesky(a);
            assert_near(choir_matmul(l, turned(l)), a, bound);
            choir_tensor *y = choir_solve_triangular(l, x, false);
            assert_near(choir_matmul(l, y), x, bound);
            y = choir_solve_triangular(turned(l), x, true);
            assert_near(choir_matmul(turned(l), y), x, bound);
        }
}

/* Matrices of lower rank, of tiny and of huge numbers, and one that is 0 or not a number. */
static void odd_matrices(void **state)
{
    choir_tensor *x = choir_cast(choir_randn(step, choir_dims(8, 2), "x"), CHOIR_F64), *u, *vt;
    choir_tensor *flat = choir_matmul(x, turned(choir_narrow(x, 0, 0, 5))); /* (8, 5), rank 2 */
    check_svd(flat, 1e-13);
    check_svd(choir_scale(x, 1e300), 1e-13);
    assert_near(choir_svd(choir_scale(x, 1e-300), NULL, NULL),
        choir_scale(choir_svd(x, NULL, NULL), 1e-300), 1e-13);
    choir_tensor *s = choir_svd(choir_zeros(step, CHOIR_F32, choir_dims(4, 3)), &u, &vt);
    assert_true(choir_item(choir_sum(s)) == 0);
    assert_orthonormal(u, 1e-6);
    s = choir_svd(choir_full(step, CHOIR_F32, choir_dims(2, 2), INFINITY), &u, &vt);
    assert_true(isnan(choir_item(choir_sum(s))) && isnan(choir_item(choir_sum(u))));
}

/* 16-bit matrices are computed in f32; of a, and of x's upper triangle, the rest is not read.
 */
static void halves(void **state)
{
    choir_tensor *x =
        choir_cast(definite(choir_randn(step, choir_dims(4, 4), "x")), CHOIR_BF16);
    choir_tensor *l = choir_cholesky(x), *wide = choir_cholesky(choir_cast(x, CHOIR_F32));
    assert_int_equal(choir_tensor_dtype(l), CHOIR_BF16);
    assert_near(l, wide, 0.01);
    assert_near(choir_cholesky(choir_tril(x, 0)), wide, 0.01);
    assert_near(choir_solve_triangular(choir_triu(x, 0), x, true),
        choir_solve_triangular(x, x, true), 1e-9);
    assert_near(
        choir_svd(x, NULL, NULL), choir_svd(choir_cast(x, CHOIR_F32), NULL, NULL), 0.01);
}

/* --- gradients --- */

static choir_tensor *of_cholesky(choir_tensor *const *in)
{
    choir_tensor *l = choir_cholesky(definite(in[0]));
    return choir_mul(l, choir_exp(choir_scale(l, 0.2)));
}

static choir_tensor *of_lower(choir_tensor *const *in)
{
    choir_tensor *a = choir_add(in[0], choir_tril(choir_triu(choir_affine(in[0], 0, 3), 0), 0));
    return choir_square(choir_solve_triangular(a, in[1], false));
}

static choir_tensor *of_upper(choir_tensor *const *in)
{
    choir_tensor *a = choir_add(in[0], choir_tril(choir_triu(choir_affine(in[0], 0, 3), 0), 0));
    return choir_square(choir_solve_triangular(a, in[1], true));
}

static choir_tensor *of_svd(choir_tensor *const *in)
{
    choir_tensor *u, *vt, *s = choir_svd(in[0], &u, &vt);
    choir_shape shape = choir_tensor_shape(s);
    int64_t n = shape.dim[shape.ndim - 1];
    shape.dim[shape.ndim - 1] = 1;
    shape.dim[shape.ndim++] = n;
    choir_tensor *weighed = choir_mul(choir_square(u), choir_reshape(s, shape));
    return choir_matmul(choir_add(weighed, u), choir_sin(vt));
}

static choir_tensor *of_singular_values(choir_tensor *const *in)
{
    return choir_square(choir_svd(in[0], NULL, NULL));
}

static void gradients(void **state)
{
    check_op(of_cholesky, leaf(choir_dims(2, 3, 4), false), NULL, NULL);
    check_op(of_lower, leaf(choir_dims(2, 3, 3), false), leaf(choir_dims(3, 2), false), NULL);
    check_op(of_upper, leaf(choir_dims(3, 3), false), leaf(choir_dims(2, 3, 2), false), NULL);
    check_op(of_svd, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_op(of_svd, leaf(choir_dims(3, 3), false), NULL, NULL);
    check_op(of_svd, leaf(choir_dims(2, 2, 4), false), NULL, NULL);
    check_op(of_singular_values, leaf(choir_dims(2, 3, 2), false), NULL, NULL);
}

/* Where singular values are equal, or 0, the gradient of their sum is a number. */
static void gradients_of_equal_values(void **state)
{
    choir_tensor *one =
        choir_expand(choir_full(step, CHOIR_F32, choir_dims(1), 1), choir_dims(4, 3));
    choir_tensor *x = choir_require_grad(choir_tril(choir_triu(one, 0), 0)); /* s: 1, 1, 1 */
    ok(choir_backward(choir_sum(choir_svd(x, NULL, NULL))));
    assert_near(choir_grad(x), x, 1e-6); /* u v' = x */
    choir_tensor *none = choir_require_grad(choir_zeros(step, CHOIR_F32, choir_dims(4, 3)));
    ok(choir_backward(choir_sum(choir_svd(none, NULL, NULL))));
    assert_true(isfinite(choir_item(choir_sum(choir_grad(none)))));
}

/* --- refusals --- */

static void refusals(void **state)
{
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(2, 3), 1);
    choir_tensor *whole = choir_full(step, CHOIR_I64, choir_dims(2, 2), 1);
    choir_tensor *a = choir_full(step, CHOIR_F32, choir_dims(2, 2), 1), *u, *vt;
    assert_refused(choir_cholesky(x), CHOIR_ERR_SHAPE, "cholesky: expected floating matrices");
    assert_refused(choir_cholesky(whole), CHOIR_ERR_SHAPE, "cholesky: expected floating");
    assert_refused(choir_solve_triangular(x, x, true), CHOIR_ERR_SHAPE, "solve_triangular");
    assert_refused(choir_solve_triangular(a, turned(x), true), CHOIR_ERR_SHAPE,
        "(..., n, n) and (..., n, cols)");
    assert_refused(choir_solve_triangular(choir_cast(a, CHOIR_F64), x, true), CHOIR_ERR_SHAPE,
        "two matrices of one dtype");
    assert_refused(
        choir_svd(whole, &u, &vt), CHOIR_ERR_SHAPE, "svd: expected floating matrices");
    choir_scope_clear(step);
    choir_tensor *sum = choir_sum(choir_cholesky(a)); /* the second pivot is 0 */
    float value;
    assert_fails(choir_read(sum, &value, sizeof value), CHOIR_ERR_RANGE,
        "in matrix 0 row 1 has the pivot 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(factors),
        IN_SCOPES(odd_matrices),
        IN_SCOPES(halves),
        IN_SCOPES(gradients),
        IN_SCOPES(gradients_of_equal_values),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("linear algebra", tests, NULL, NULL);
}
