/* Ops that order entries, products by letters, powers, similarities, convolutions of signals
 * and volumes, and other sizes: gradients against central differences in f64, values of special
 * cases, and refusals. */
#include <math.h>

#include <choir/ops.h>
#include <choir/select.h>
#include <choir/volumes.h>

#include "gradcheck_fixture.h"

/* --- in order --- */

static choir_tensor *sorted(choir_tensor *const *in)
{
    choir_tensor *index, *y = choir_sort(in[0], 1, true, &index);
    choir_tensor *z = choir_gather_dim(in[0], 1, choir_argsort(in[0], 1, false));
    return choir_mul(y, choir_mul(z, choir_cast(index, CHOIR_F64)));
}

static choir_tensor *first_ones(choir_tensor *const *in)
{
    choir_tensor *most = choir_topk(in[0], 2, 0, true, NULL);
    return choir_mul(most, choir_topk(choir_square(in[0]), 2, -3, false, NULL));
}

static void in_order(void **state)
{
    check_op(sorted, leaf(choir_dims(3, 5, 2), false), NULL, NULL);
    check_op(first_ones, leaf(choir_dims(5, 2, 3), false), NULL, NULL);
}

/* --- products --- */

#define EINSUM(name, equation, count)                                                          \
    static choir_tensor *name(choir_tensor *const *in)                                         \
    {                                                                                          \
        return choir_einsum(equation, in, count);                                              \
    }
EINSUM(batched, "bij,bjk->bik", 2)
EINSUM(turned, "ij,kj", 2)
EINSUM(bilinear, "bi,oij,bj->bo", 3)
EINSUM(outer, "a,bc->cab", 2)
EINSUM(traced, "iji->j", 1)
EINSUM(spread, "...ij,jk...->k...", 2)
EINSUM(summed, "ab,cd->", 2)

static void products(void **state)
{
    check_op(batched, leaf(choir_dims(2, 3, 4), false), leaf(choir_dims(2, 4, 2), false), NULL);
    check_op(turned, leaf(choir_dims(3, 4), false), leaf(choir_dims(2, 4), false), NULL);
    check_op(bilinear, leaf(choir_dims(3, 2), false), leaf(choir_dims(4, 2, 3), false),
        leaf(choir_dims(3, 3), false));
    check_op(outer, leaf(choir_dims(3), false), leaf(choir_dims(2, 4), false), NULL);
    check_op(traced, leaf(choir_dims(3, 2, 3), false), NULL, NULL);
    check_op(
        spread, leaf(choir_dims(2, 3, 3, 4), false), leaf(choir_dims(4, 2, 1, 3), false), NULL);
    check_op(summed, leaf(choir_dims(2, 3), false), leaf(choir_dims(3, 1), false), NULL);
}

/* --- powers and similarities --- */

static choir_tensor *powers(choir_tensor *const *in)
{
    return choir_pow_tensor(in[0], in[1]);
}

static choir_tensor *similar(choir_tensor *const *in)
{
    return choir_cosine_similarity(in[0], in[1], -1, 1e-8);
}

static void powers_and_similarities(void **state)
{
    check_op(powers, leaf(choir_dims(4, 3), true), leaf(choir_dims(3), false), NULL);
    check_op(similar, leaf(choir_dims(4, 3), false), leaf(choir_dims(2, 1, 3), false), NULL);
}

/* --- signals and volumes --- */

static choir_tensor *signal(choir_tensor *const *in)
{
    choir_conv_opts o = {.stride = 2, .padding = 2, .dilation = 2, .groups = 2};
    return choir_conv1d(in[0], in[1], in[2], o);
}

static choir_tensor *signals(choir_tensor *const *in)
{
    choir_tensor *y = choir_conv1d(in[0], in[1], NULL, choir_conv_defaults());
    return choir_conv1d(choir_tanh(y), in[2], NULL, choir_conv_defaults());
}

static choir_tensor *volume(choir_tensor *const *in)
{
    choir_conv3d_opts o = {{2, 1, 2}, {2, 1, 0}, {2, 1, 1}, 2};
    return choir_conv3d(in[0], in[1], in[2], o);
}

static choir_tensor *small_volume(choir_tensor *const *in)
{
    return choir_conv3d(in[0], in[1], NULL, choir_conv3d_defaults());
}

static void convolutions(void **state)
{
    check_op(signal, leaf(choir_dims(2, 4, 7), false), leaf(choir_dims(4, 2, 3), false),
        leaf(choir_dims(4), false));
    check_op(signals, leaf(choir_dims(2, 3, 6), false), leaf(choir_dims(4, 3, 2), false),
        leaf(choir_dims(2, 4, 3), false));
    check_op(volume, leaf(choir_dims(1, 4, 4, 3, 3), false),
        leaf(choir_dims(2, 2, 2, 2, 3), false), leaf(choir_dims(2), false));
    check_op(small_volume, leaf(choir_dims(2, 2, 3, 3, 2), false),
        leaf(choir_dims(3, 2, 2, 2, 2), false), NULL);
}

/* --- other sizes --- */

static choir_tensor *resized(
    choir_tensor *x, int64_t a, int64_t b, choir_interpolation how, bool corners)
{
    return choir_interpolate(x, (int64_t[]){a, b}, 2, how, corners);
}

static choir_tensor *nearest(choir_tensor *const *in)
{
    return choir_add(resized(in[0], 5, 4, CHOIR_NEAREST, false),
        resized(choir_square(in[0]), 5, 4, CHOIR_NEAREST, false));
}

static choir_tensor *linear(choir_tensor *const *in)
{
    return choir_mul(
        resized(in[0], 7, 2, CHOIR_LINEAR, false), resized(in[0], 7, 2, CHOIR_LINEAR, true));
}

static choir_tensor *cubic(choir_tensor *const *in)
{
    return choir_mul(
        resized(in[0], 2, 7, CHOIR_CUBIC, false), resized(in[0], 2, 7, CHOIR_CUBIC, true));
}

static choir_tensor *trilinear(choir_tensor *const *in)
{
    return choir_interpolate(in[0], (int64_t[]){3, 4, 5}, 3, CHOIR_LINEAR, false);
}

static void other_sizes(void **state)
{
    check_op(nearest, leaf(choir_dims(2, 2, 3, 3), false), NULL, NULL);
    check_op(linear, leaf(choir_dims(2, 2, 3, 3), false), NULL, NULL);
    check_op(cubic, leaf(choir_dims(2, 2, 3, 3), false), NULL, NULL);
    check_op(trilinear, leaf(choir_dims(1, 2, 2, 2, 2), false), NULL, NULL);
}

/* --- values --- */

/* Equal entries keep their order in both directions, -0 equals 0, and NaN is the greatest; in
 * 16 bits, too, and for integers. */
static void stable(void **state)
{
    static const float x[] = {2, -0.0f, NAN, 0, 2, -1, NAN, 0};
    static const int64_t big[] = {INT64_MAX, INT64_MIN, INT64_MAX - 1, 0};
    static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_F64, CHOIR_BF16, CHOIR_F16};
    choir_tensor *index;
    for (size_t i = 0; i < CHOIR_COUNT(dtypes); i++) {
        choir_tensor *t = choir_cast(choir_from(step, CHOIR_F32, choir_dims(8), x), dtypes[i]);
        choir_tensor *y = choir_sort(t, 0, false, &index);
        assert_int_equal(choir_tensor_dtype(y), dtypes[i]);
        assert_values(y, (double[]){-1, 0, 0, 0, 2, 2, NAN, NAN}, 8);
        assert_values(index, (double[]){5, 1, 3, 7, 0, 4, 2, 6}, 8);
        assert_values(choir_argsort(t, -1, true), (double[]){2, 6, 0, 4, 1, 3, 7, 5}, 8);
        assert_values(choir_topk(t, 3, 0, true, &index), (double[]){NAN, NAN, 2}, 3);
        assert_values(index, (double[]){2, 6, 0}, 3);
        assert_values(choir_topk(t, 2, 0, false, &index), (double[]){-1, 0}, 2);
        assert_values(index, (double[]){5, 1}, 2);
    }
    choir_tensor *t = choir_from(step, CHOIR_I64, choir_dims(4), big);
    assert_values(choir_argsort(t, 0, false), (double[]){1, 3, 2, 0}, 4);
    assert_int_equal(choir_tensor_count(choir_topk(t, 0, 0, true, &index)), 0);
    ok(choir_scope_status(step));
}

/* The gradients of powers where the formula gives 0 times infinity. */
static void powers_of_zero(void **state)
{
    static const double a[] = {0, 0, 0, -2}, b[] = {0, 2, 0.5, 3};
    choir_tensor *x = choir_require_grad(choir_from(step, CHOIR_F64, choir_dims(4), a));
    choir_tensor *y = choir_require_grad(choir_from(step, CHOIR_F64, choir_dims(4), b));
    choir_tensor *p = choir_pow_tensor(x, y);
    assert_values(p, (double[]){1, 0, 0, -8}, 4);
    choir_check(choir_backward(choir_sum(p)));
    assert_values(choir_grad(x), (double[]){0, 0, INFINITY, 12}, 4);
    assert_values(choir_grad(y), (double[]){0, 0, 0, NAN}, 4);
}

/* --- 16 bits --- */

/* in: (2, 4, 3, 5, 5), (4, 4, 2, 2, 2) and (4), all positive */
static choir_tensor *einsum_of_two(choir_tensor *const *in)
{
    return choir_einsum("n...,o...abc->no...",
        (choir_tensor *[]){choir_sum_dim(choir_sum_dim(choir_sum_dim(in[0], 4), 3), 2), in[1]},
        2);
}

static choir_tensor *power_of_two(choir_tensor *const *in)
{
    return choir_pow_tensor(choir_reshape(in[1], choir_dims(-1, 4)), choir_neg(in[2]));
}

static choir_tensor *cosine_of_two(choir_tensor *const *in)
{
    choir_tensor *rows = choir_reshape(in[1], choir_dims(-1, 4));
    return choir_cosine_similarity(rows, in[2], 1, 1e-8);
}

static choir_tensor *volume_of_two(choir_tensor *const *in)
{
    return choir_conv3d(in[0], in[1], NULL, choir_conv3d_defaults());
}

static choir_tensor *signal_of_two(choir_tensor *const *in)
{
    return choir_conv1d(choir_reshape(in[0], choir_dims(2, 4, 75)),
        choir_reshape(in[1], choir_dims(4, 4, 8)), NULL, choir_conv_defaults());
}

static choir_tensor *larger(choir_tensor *const *in)
{
    return choir_interpolate(in[0], (int64_t[]){4, 7, 3}, 3, CHOIR_LINEAR, false);
}

/* Reads a result and the gradients of its sum, of operands in dtype, into y. */
static int64_t results_in(choir_dtype dtype, apply_fn *f, double *y, int64_t room)
{
    static const choir_shape shapes[] = {{5, {2, 4, 3, 5, 5}}, {5, {4, 4, 2, 2, 2}}, {1, {4}}};
    choir_tensor *x[3], *in[3];
    for (int i = 0; i < 3; i++) {
        bool grad = choir_set_grad(step, false);
        float values[600];
        for (int j = 0; j < 600; j++) /* 8 bits each: exact in bf16 */
            values[j] = (float)(64 + (j * 37 + 11 * i) % 97) / 64;
        x[i] = choir_from(step, CHOIR_F32, shapes[i], values);
        choir_set_grad(step, grad);
        in[i] = choir_cast(choir_require_grad(x[i]), dtype);
    }
    choir_tensor *t = f(in), *kept = choir_keep(step, t);
    assert_int_equal(choir_tensor_dtype(t), dtype);
    choir_check(choir_backward(choir_sum(choir_cast(t, CHOIR_F32))));
    int64_t at = 0;
    for (int i = 0; i < 4; i++) {
        choir_tensor *each = i ? choir_grad(x[i - 1]) : kept;
        if (!each)
            continue;
        each = choir_contiguous(choir_cast(each, CHOIR_F64));
        assert_in_range(at + choir_tensor_count(each), 1, room);
        choir_check(choir_read(each, y + at, (size_t)choir_tensor_count(each) * 8));
        at += choir_tensor_count(each);
    }
    return at;
}

static void halves(void **state)
{
    enum { ROOM = 4096 };
    static double exact[ROOM], rounded[ROOM];
    static apply_fn *const fns[] = {
        einsum_of_two, power_of_two, cosine_of_two, volume_of_two, signal_of_two, larger};
    for (size_t i = 0; i < CHOIR_COUNT(fns); i++)
        for (int half = 0; half < 2; half++) {
            int64_t n = results_in(CHOIR_F32, fns[i], exact, ROOM);
            assert_int_equal(
                results_in(half ? CHOIR_F16 : CHOIR_BF16, fns[i], rounded, ROOM), n);
            for (int64_t j = 0; j < n; j++)
                if (!(fabs(rounded[j] - exact[j]) <= 0.02 * (fabs(exact[j]) + 0.5)))
                    fail_msg("op %zu: element %lld is %g, in f32 %g", i, (long long)j,
                        rounded[j], exact[j]);
        }
}

/* --- refusals --- */

static void bad_equation(
    const char *equation, choir_tensor *a, choir_tensor *b, const char *words)
{
    choir_tensor *in[2] = {a, b};
    assert_refused(choir_einsum(equation, in, 2), CHOIR_ERR_ARGUMENT, words);
}

static void refusals(void **state)
{
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(3, 2), 1), *index;
    choir_tensor *many = choir_full(step, CHOIR_F32, choir_dims(1, 1, 1, 1, 2), 1);
    choir_tensor *ids = choir_full(step, CHOIR_I64, choir_dims(3, 2), 1);
    assert_refused(choir_sort(x, 2, true, &index), CHOIR_ERR_SHAPE, "sort: (3, 2) has no");
    assert_refused(choir_topk(x, 4, 0, true, &index), CHOIR_ERR_ARGUMENT,
        "topk: expected 0 to 3 entries of dimension 0, got 4");
    assert_refused(choir_topk(x, -1, 0, true, &index), CHOIR_ERR_ARGUMENT, "got -1");
    bad_equation("ij,jk", x, x, "einsum 'ij,jk': expected one size for each letter");
    bad_equation("ij->ij", x, x, "one list of letters for each operand");
    bad_equation("ij,ij,ij->i", x, x, "one list of letters for each operand");
    bad_equation("i,ij->j", x, x, "a letter for each dimension");
    bad_equation("ij,ij->k", x, x, "letters of the operands in the result");
    bad_equation("ij,ij->ii", x, x, "each once");
    bad_equation("i1,ij->j", x, x, "expected letters");
    bad_equation("ij,ij-ij", x, x, "expected letters");
    bad_equation("ij,ij->i,j", x, x, "one result");
    bad_equation("ii,ij->j", x, x, "one size for each letter");
    bad_equation("ij,klmno->ijklmno", x, many, "expected fewer");
    assert_refused(choir_einsum("ij,ij->i", (choir_tensor *[]){x, ids}, 2), CHOIR_ERR_SHAPE,
        "matmul: expected floating");
    assert_refused(choir_pow_tensor(x, ids), CHOIR_ERR_SHAPE, "one dtype");
    assert_refused(
        choir_cosine_similarity(x, ids, 0, 0), CHOIR_ERR_SHAPE, "one floating dtype");
    assert_refused(
        choir_conv1d(x, x, NULL, choir_conv_defaults()), CHOIR_ERR_SHAPE, "(N, C, L)");
    choir_tensor *signal_of_2 = choir_reshape(x, choir_dims(3, 1, 2));
    choir_tensor *kernel_of_3 = choir_reshape(x, choir_dims(2, 1, 3));
    assert_refused(choir_conv1d(signal_of_2, kernel_of_3, NULL, choir_conv_defaults()),
        CHOIR_ERR_ARGUMENT, "no place for a kernel of 3");
    assert_refused(
        choir_conv3d(many, x, NULL, choir_conv3d_defaults()), CHOIR_ERR_SHAPE, "(N, C, D,");
    assert_refused(choir_interpolate(signal_of_2, (int64_t[]){4}, 1, CHOIR_NEAREST, true),
        CHOIR_ERR_ARGUMENT, "CHOIR_NEAREST without align_corners");
    assert_refused(choir_interpolate(signal_of_2, (int64_t[]){0}, 1, CHOIR_LINEAR, true),
        CHOIR_ERR_SHAPE, "a size above 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(in_order),
        IN_SCOPES(products),
        IN_SCOPES(powers_and_similarities),
        IN_SCOPES(convolutions),
        IN_SCOPES(other_sizes),
        IN_SCOPES(stable),
        IN_SCOPES(powers_of_zero),
        IN_SCOPES(halves),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("ordering ops", tests, NULL, NULL);
}
