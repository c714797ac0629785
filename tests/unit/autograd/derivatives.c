/* Second derivatives: choir_derivatives gives the gradients of a backward, and the derivatives
 * of its results equal central differences, in f64. */
#include <math.h>

#include <choir/autograd.h>
#include <choir/linalg.h>
#include <choir/make.h>
#include <choir/select.h>
#include <choir/volumes.h>

#include "gradcheck_fixture.h"
#include "tensor/tensor.h"

/* --- the check --- */

/* Returns a weighted sum of the derivatives of the function's own weighted sum. */
static choir_tensor *first_derivatives(choir_tensor *const *in, int count, void *arg)
{
    choir_scope *s = choir_tensor_scope(in[0]);
    bool grad = choir_set_grad(s, true);
    choir_tensor *dx[3], *sum = NULL;
    for (int i = 0; i < count; i++)
        choir_require_grad(in[i]);
    ok(choir_derivatives(weigh((*(apply_fn **)arg)(in)), in, count, dx));
    for (int i = 0; i < count; i++) {
        choir_tensor *w = weigh(dx[i]);
        sum = sum ? choir_add(sum, choir_square(w)) : choir_square(w);
    }
    choir_set_grad(s, grad);
    return sum;
}

static void assert_near(choir_tensor *ours, choir_tensor *expected)
{
    double a[512], b[512];
    int64_t n = choir_tensor_count(expected);
    assert_int_equal(choir_tensor_count(ours), n);
    ok(choir_read(choir_contiguous(ours), a, (size_t)n * sizeof *a));
    ok(choir_read(choir_contiguous(expected), b, (size_t)n * sizeof *b));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= 1e-9 * fmax(1, fabs(b[i]))))
            fail_msg("entry %d is %.15g, backward's %.15g", (int)i, a[i], b[i]);
}

static void check_twice(apply_fn *f, choir_tensor *a, choir_tensor *b, choir_tensor *c)
{
    choir_tensor *in[3] = {a, b, c}, *dx[3];
    int count = c ? 3 : b ? 2 : 1;
    for (int i = 0; i < count; i++)
        ok(choir_zero_grad(in[i]));
    ok(choir_derivatives(weigh(f(in)), in, count, dx));
    for (int i = 0; i < count; i++)
        dx[i] = choir_keep(step, dx[i]);
    ok(choir_backward(weigh(f(in))));
    for (int i = 0; i < count; i++)
        assert_near(dx[i], choir_grad(in[i]));
    choir_status status = choir_gradcheck(first_derivatives, in, count, &f, 1e-5);
    if (status != CHOIR_OK)
        print_error("%s\n", choir_error_message());
    ok(status);
}

/* --- functions of one element --- */

static choir_tensor *(*element)(choir_tensor *);

static choir_tensor *of_element(choir_tensor *const *in)
{
    return choir_mul(element(in[0]), choir_sin(in[0]));
}

static choir_tensor *affine(choir_tensor *x)
{
    return choir_affine(x, -1.5, 0.25);
}

static choir_tensor *powers(choir_tensor *x)
{
    return choir_add(choir_pow(x, 2.5), choir_pow(x, -1));
}

static choir_tensor *clamped(choir_tensor *x)
{
    return choir_clamp(x, 0.7, 1.3);
}

static choir_tensor *bent(choir_tensor *x)
{
    choir_tensor *turned = choir_affine(x, -2, 2.1); /* on both sides of 0 */
    choir_tensor *y = choir_mul(choir_leaky_relu(turned, 0.1), choir_elu(turned, 0.6));
    return choir_add(y, choir_softplus(turned, 1.5, 2));
}

static void elements(void **state)
{
    static choir_tensor *(*const fns[])(choir_tensor *) = {choir_neg, choir_exp, choir_log,
        choir_sqrt, choir_tanh, choir_sigmoid, choir_relu, choir_gelu, choir_gelu_tanh,
        choir_silu, choir_square, choir_abs, choir_sin, choir_cos, choir_sign, choir_floor,
        choir_log1p, choir_expm1, choir_erf, affine, powers, clamped, bent};
    for (size_t i = 0; i < CHOIR_COUNT(fns); i++) {
        element = fns[i];
        check_twice(of_element, leaf(choir_dims(2, 3), true), NULL, NULL);
    }
}

/* --- of two, which broadcast --- */

static choir_tensor *arithmetic(choir_tensor *const *in)
{
    choir_tensor *y = choir_div(choir_mul(in[0], in[1]), choir_add(in[0], choir_exp(in[1])));
    return choir_sub(y, choir_pow_tensor(in[0], in[1]));
}

static choir_tensor *extremes(choir_tensor *const *in)
{
    choir_tensor *more = choir_maximum(in[0], in[1]), *less = choir_minimum(in[0], in[1]);
    choir_tensor *most = choir_max_dim(choir_mul(more, choir_square(less)), 0, false, NULL);
    return choir_mul(most, choir_where(choir_gt(in[0], in[1]), in[0], choir_square(in[1])));
}

static void pairs(void **state)
{
    check_twice(arithmetic, leaf(choir_dims(3, 2), true), leaf(choir_dims(2), true), NULL);
    check_twice(extremes, leaf(choir_dims(3, 2), true), leaf(choir_dims(2), true), NULL);
}

/* --- products --- */

static choir_tensor *products(choir_tensor *const *in)
{
    choir_tensor *y = choir_tanh(choir_linear(in[0], in[1], in[2])); /* (2, 3, 4) */
    return choir_matmul(y, choir_transpose(choir_square(y), 1, 2));
}

static choir_tensor *shared_matrix(choir_tensor *const *in)
{
    choir_tensor *y = choir_sin(choir_matmul(in[0], in[1])); /* (2, 3, 4) */
    return choir_einsum("bij,bkj->ik", (choir_tensor *[]){y, y}, 2);
}

static choir_tensor *convolved(choir_tensor *const *in)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = 2, o.padding = 1, o.padding_w = -1, o.dilation_w = 2, o.groups = 2;
    choir_tensor *y = choir_tanh(choir_conv2d(in[0], in[1], in[2], o));
    return choir_mul(y, y);
}

static choir_tensor *convolved_back(choir_tensor *const *in)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = 2, o.padding = 1, o.output_padding = 1;
    return choir_tanh(choir_conv_transpose2d(in[0], in[1], in[2], o));
}

static void contractions(void **state)
{
    check_twice(products, leaf(choir_dims(2, 3, 2), false), leaf(choir_dims(4, 2), false),
        leaf(choir_dims(4), false));
    check_twice(
        shared_matrix, leaf(choir_dims(2, 3, 2), false), leaf(choir_dims(2, 4), false), NULL);
    check_twice(convolved, leaf(choir_dims(1, 4, 4, 5), false),
        leaf(choir_dims(2, 2, 3, 2), false), leaf(choir_dims(2), false));
    check_twice(convolved_back, leaf(choir_dims(1, 2, 2, 3), false),
        leaf(choir_dims(2, 2, 3, 3), false), leaf(choir_dims(2), false));
}

/* --- views, sums, lookups --- */

static choir_tensor *moved(choir_tensor *const *in)
{
    static const int64_t widths[] = {1, -1, 2, 0};
    choir_tensor *x = choir_square(in[0]); /* (4, 3) */
    choir_tensor *parts[2] = {
        choir_narrow(x, 0, 1, 2), choir_transpose(choir_pad(x, widths, 4, 1), 0, 1)};
    parts[1] = choir_narrow(choir_reshape(parts[1], choir_dims(6, 3)), 0, 0, 3);
    x = choir_cat(parts, 2, 0);
    return choir_mul(choir_cumsum(x, 0), choir_expand(choir_mean_dim(x, 0), choir_dims(5, 3)));
}

static choir_tensor *looked_up(choir_tensor *const *in)
{
    static const int64_t ids[] = {2, 0, 2, 3};
    choir_tensor *index = choir_from(choir_tensor_scope(in[0]), CHOIR_I64, choir_dims(4), ids);
    choir_tensor *y =
        choir_mul(choir_embedding(in[0], index), choir_index_select(in[0], 0, index));
    y = choir_scatter_add(
        y, 0, choir_reshape(index, choir_dims(4, 1)), choir_narrow(y, 1, 0, 1));
    return choir_mul(y, choir_sort(in[0], 0, true, NULL));
}

static choir_tensor *normalised(choir_tensor *const *in)
{
    choir_tensor *y = choir_mul(choir_softmax(in[0]), choir_log_softmax(in[0]));
    y = choir_mul(y, choir_norm_dim(in[0], 2, 1, true));
    y = choir_add(y, choir_logsumexp_dim(in[0], 0, true));
    return choir_mul(y, choir_prod_dim(in[0], 1, true));
}

static choir_tensor *transformed(choir_tensor *const *in)
{
    choir_tensor *waves = choir_rfft(in[0]); /* (4, 2, 2) */
    return choir_mul(choir_square(waves), choir_std_dim(waves, 0, 1, true));
}

static choir_tensor *sampled(choir_tensor *const *in)
{
    choir_tensor *image = choir_reshape(choir_square(in[0]), choir_dims(1, 1, 4, 3));
    choir_tensor *grid = choir_reshape(choir_tanh(in[1]), choir_dims(1, 2, 2, 2));
    return choir_square(choir_grid_sample(image, grid, CHOIR_LINEAR, false, true));
}

/* Matrices whose singular values are apart. */
static choir_tensor *factors(choir_tensor *const *in)
{
    choir_tensor *u, *vt, *s = choir_svd(in[0], &u, &vt);
    choir_tensor *x = choir_matmul(choir_mul(choir_square(u), s), choir_sin(vt)); /* (4, 3) */
    choir_tensor *a = choir_matmul(choir_transpose(in[0], 0, 1), in[0]);
    choir_tensor *l = choir_cholesky(choir_affine(a, 1, 1e-3));
    choir_tensor *y = choir_solve_triangular(l, choir_transpose(x, 0, 1), false);
    return choir_add(choir_transpose(y, 0, 1), x);
}

static void others(void **state)
{
    check_twice(moved, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_twice(looked_up, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_twice(normalised, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_twice(transformed, leaf(choir_dims(4, 3), false), NULL, NULL);
    check_twice(sampled, leaf(choir_dims(4, 3), false), leaf(choir_dims(4, 2), false), NULL);
    check_twice(factors, leaf(choir_dims(4, 3), false), NULL, NULL);
}

/* --- ops with a user's own gradient --- */

static choir_tensor *product(choir_tensor *const *in, int count, const void *arg)
{
    return choir_mul(choir_square(in[0]), in[1]);
}

static void product_backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    grad_in[0] = choir_scale(choir_mul(grad_out, choir_mul(in[0], in[1])), 2);
    grad_in[1] = choir_mul(grad_out, choir_square(in[0]));
}

static void row_backward(choir_tensor *const *in, int count, choir_tensor *out,
    choir_tensor *grad_out, choir_tensor **grad_in, const void *arg)
{
    grad_in[0] = choir_narrow(grad_out, 0, 0, 1);
}

static choir_tensor *of_user(choir_tensor *const *in)
{
    static const choir_custom_op op = {"product", product, product_backward};
    return choir_mul(choir_custom(&op, in, 2, NULL), choir_sin(in[0]));
}

static void users(void **state)
{
    check_twice(of_user, leaf(choir_dims(4, 3), false), leaf(choir_dims(4, 3), false), NULL);
    static const choir_custom_op row = {"row", product, row_backward};
    static const choir_custom_op none = {.name = "none", .forward = product};
    choir_tensor *x = leaf(choir_dims(4, 3), false), *in[] = {x, x}, *dx;
    assert_fails(choir_derivatives(choir_custom(&row, in, 2, NULL), &x, 1, &dx),
        CHOIR_ERR_SHAPE, "row: backward made a gradient (1, 3) for input 0, which is (4, 3)");
    choir_scope_clear(step);
    assert_fails(choir_derivatives(choir_custom(&none, in, 2, NULL), &x, 1, &dx),
        CHOIR_ERR_UNSUPPORTED, "none: expected an op with a backward function");
    choir_scope_clear(step);
    assert_fails(choir_backward(choir_sum(choir_custom(&none, in, 2, NULL))),
        CHOIR_ERR_UNSUPPORTED, "none: expected an op with a backward function");
    choir_scope_clear(step);
}

/* A third derivative: (x^4)''' = 24 x. */
static void third(void **state)
{
    choir_tensor *x = choir_require_grad(choir_full(step, CHOIR_F64, CHOIR_SCALAR, 1.5));
    choir_tensor *y = choir_square(choir_square(x));
    for (int i = 0; i < 3; i++)
        ok(choir_derivatives(y, &x, 1, &y));
    assert_true(fabs(choir_item(y) - 36) < 1e-9);
}

static void refusals(void **state)
{
    choir_tensor *x = choir_require_grad(choir_randn(step, choir_dims(2, 4), "x")), *dx;
    choir_tensor *other = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(3), 1));
    choir_tensor *y = choir_layer_norm(x, NULL, NULL, 1e-5f);
    assert_fails(choir_derivatives(y, &x, 1, &dx), CHOIR_ERR_UNSUPPORTED,
        "'layer_norm' has no second derivative");
    choir_scope_clear(step);
    choir_tensor *still = choir_full(step, CHOIR_F32, choir_dims(2), 1);
    assert_fails(choir_derivatives(still, &x, 1, &dx), CHOIR_ERR_STATE, "no history");
    choir_scope_clear(step);
    assert_fails(choir_derivatives(choir_square(x), &still, 1, &dx), CHOIR_ERR_ARGUMENT,
        "x[0] requires no gradient");
    choir_scope_clear(step);
    ok(choir_derivatives(choir_square(x), &other, 1, &dx)); /* y does not depend on it */
    assert_int_equal(choir_tensor_count(dx), 3);
    assert_true(choir_item(choir_sum(dx)) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(elements),
        IN_SCOPES(pairs),
        IN_SCOPES(contractions),
        IN_SCOPES(others),
        IN_SCOPES(users),
        IN_SCOPES(third),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("second derivatives", tests, NULL, NULL);
}
