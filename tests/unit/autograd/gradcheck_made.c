/* Ops that are made of others: gradients against central differences in f64, values, and
 * refusals. */
#include <math.h>

#include <choir/make.h>
#include <choir/select.h>
#include <choir/volumes.h>

#include "gradcheck_fixture.h"

/* --- gradients --- */

static choir_tensor *reduced(choir_tensor *const *in)
{
    choir_tensor *y =
        choir_mul(choir_std_dim(in[0], 1, 1, true), choir_logsumexp_dim(in[0], 1, true));
    return choir_add(y, choir_prod_dim(in[0], 0, true));
}

static choir_tensor *turned(choir_tensor *const *in)
{
    choir_tensor *y = choir_flip(choir_roll(in[0], -4, 1), 0);
    return choir_mul(choir_add(choir_tril(y, 1), choir_triu(in[0], 0)), y);
}

static choir_tensor *shuffled(choir_tensor *const *in)
{
    choir_tensor *x = choir_reshape(in[0], choir_dims(1, 4, 2, 3));
    return choir_mul(choir_pixel_unshuffle(choir_pixel_shuffle(choir_square(x), 2), 2), x);
}

static choir_tensor *windowed(choir_tensor *const *in)
{
    choir_conv_opts o = choir_conv_defaults();
    o.stride = 2, o.padding = 1, o.dilation_w = 2;
    choir_tensor *columns = choir_square(choir_unfold(in[0], 2, 2, o));
    return choir_mul(choir_fold(columns, 4, 5, 2, 2, o), in[0]);
}

static choir_tensor *sampled(choir_tensor *const *in)
{
    choir_tensor *grid = choir_scale(choir_reshape(in[1], choir_dims(2, 3, 2, 2)), 0.8);
    choir_tensor *y = choir_grid_sample(in[0], grid, CHOIR_LINEAR, false, true);
    y = choir_mul(y, choir_grid_sample(in[0], grid, CHOIR_LINEAR, true, false));
    return choir_add(y, choir_grid_sample(in[0], grid, CHOIR_NEAREST, false, false));
}

static choir_tensor *transformed(choir_tensor *const *in)
{
    choir_tensor *waves = choir_square(choir_rfft(in[0])); /* (2, 18, 2) */
    return choir_mul(choir_irfft(waves, 35), in[0]);
}

static choir_tensor *each_by_itself(choir_tensor *const *in)
{
    return choir_instance_norm(in[0], in[1], in[1], 1e-5f);
}

static void gradients(void **state)
{
    check_op(reduced, leaf(choir_dims(3, 5), false), NULL, NULL);
    check_op(turned, leaf(choir_dims(3, 5), false), NULL, NULL);
    check_op(shuffled, leaf(choir_dims(24), false), NULL, NULL);
    check_op(windowed, leaf(choir_dims(1, 2, 4, 5), false), NULL, NULL);
    check_op(sampled, leaf(choir_dims(2, 2, 4, 3), false), leaf(choir_dims(24), false), NULL);
    check_op(transformed, leaf(choir_dims(1, 35), false), NULL, NULL);
    check_op(
        each_by_itself, leaf(choir_dims(2, 3, 2, 2), false), leaf(choir_dims(3), true), NULL);
}

/* --- values --- */

static void in_a_row(void **state)
{
    assert_values(choir_arange(step, CHOIR_I64, 2, 7, 2), (double[]){2, 4, 6}, 3);
    assert_values(choir_arange(step, CHOIR_F32, 1, 0, -0.5), (double[]){1, 0.5}, 2);
    assert_values(choir_arange(step, CHOIR_F32, 1, 1, 1), NULL, 0);
    assert_values(
        choir_linspace(step, CHOIR_F64, -1, 1, 5), (double[]){-1, -0.5, 0, 0.5, 1}, 5);
    assert_values(choir_eye(step, CHOIR_U8, 2, 3), (double[]){1, 0, 0, 0, 1, 0}, 6);
}

static void sets(void **state)
{
    static const int64_t values[] = {0, 3, 0, 0, 7, -1};
    choir_tensor *x = choir_from(step, CHOIR_I64, choir_dims(2, 3), values);
    assert_values(choir_any_dim(x, 0, false), (double[]){0, 1, 1}, 3);
    assert_values(choir_all_dim(x, 1, true), (double[]){0, 0}, 2);
    assert_values(choir_nonzero(x), (double[]){0, 1, 1, 1, 1, 2}, 6);
    assert_values(choir_roll(x, 1, 1), (double[]){0, 0, 3, -1, 0, 7}, 6);
    assert_values(choir_flip(x, -1), (double[]){0, 3, 0, -1, 7, 0}, 6);
    choir_tensor *none = choir_full(step, CHOIR_F32, choir_dims(2, 2), -INFINITY);
    assert_values(choir_logsumexp_dim(none, 0, false), (double[]){-INFINITY, -INFINITY}, 2);
}

/* Draws repeat by name, and their shares are the probabilities. */
static void draws(void **state)
{
    enum { N = 4000 };
    static const double weights[] = {1, 0, 3, 4};
    choir_tensor *dice = choir_randint(step, choir_dims(N), "dice", 1, 7);
    int64_t faces[N], seen[7] = {0};
    ok(choir_read(dice, faces, sizeof faces));
    for (int i = 0; i < N; i++) {
        assert_in_range(faces[i], 1, 6);
        seen[faces[i]]++;
    }
    for (int i = 1; i < 7; i++)
        assert_in_range(seen[i], N / 6 - 120, N / 6 + 120);
    choir_tensor *p = choir_full(step, CHOIR_F32, choir_dims(N), 0.25);
    assert_in_range(
        (int)choir_item(choir_sum(choir_bernoulli(p, "coins"))), N / 4 - 120, N / 4 + 120);

    choir_tensor *w = choir_from(step, CHOIR_F64, choir_dims(4), weights);
    int64_t drawn[N], count[4] = {0};
    ok(choir_read(choir_multinomial(w, N, true, "urn"), drawn, sizeof drawn));
    for (int i = 0; i < N; i++)
        count[drawn[i]]++;
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)count[i] - N * weights[i] / 8) <= (weights[i] > 0 ? 140 : 0));
    int64_t all[4];
    ok(choir_read(choir_multinomial(w, 4, false, "urn"), all, sizeof all));
    assert_int_equal(all[3], 1); /* weight 0 comes last */
    assert_int_equal(all[0] + all[1] + all[2] + all[3], 6);
}

/* --- 16 bits: computed in f32, and rounded once at the end --- */

static choir_tensor *leaky(choir_tensor *x)
{
    return choir_leaky_relu(choir_affine(x, -1, 1), 0.1);
}

static choir_tensor *elu(choir_tensor *x)
{
    return choir_elu(choir_affine(x, -1, 1), 1);
}

static choir_tensor *softplus(choir_tensor *x)
{
    return choir_softplus(x, 1, 20);
}

static choir_tensor *greater(choir_tensor *x)
{
    return choir_minimum(choir_maximum(x, choir_scale(x, 0.5)), choir_scale(x, 2));
}

static choir_tensor *deviation(choir_tensor *x)
{
    return choir_std_dim(x, 1, 1, false);
}

static choir_tensor *log_of_sums(choir_tensor *x)
{
    return choir_logsumexp_dim(x, 0, true);
}

static choir_tensor *of_all(choir_tensor *x)
{
    return choir_prod_dim(x, 1, false);
}

static choir_tensor *corner(choir_tensor *x)
{
    return choir_triu(choir_tril(choir_roll(choir_flip(x, 0), 1, 1), 1), 0);
}

static void halves(void **state)
{
    static choir_tensor *(*const ops[])(choir_tensor *) = {choir_log1p, choir_expm1, choir_erf,
        choir_sign, leaky, elu, softplus, greater, deviation, log_of_sums, of_all, corner};
    choir_tensor *x = choir_cast(choir_rand(step, choir_dims(4, 6), "x", 0.5, 2), CHOIR_BF16);
    for (size_t i = 0; i < CHOIR_COUNT(ops); i++)
        for (int d = 0; d < 2; d++) {
            choir_dtype dtype = d ? CHOIR_F16 : CHOIR_BF16;
            choir_tensor *y = ops[i](choir_cast(x, dtype)),
                         *exact = ops[i](choir_cast(x, CHOIR_F32));
            assert_int_equal(choir_tensor_dtype(y), dtype);
            choir_tensor *off = choir_sub(choir_cast(y, CHOIR_F32), exact);
            double size = choir_item(choir_mean(choir_square(exact)));
            assert_true(choir_item(choir_mean(choir_square(off))) <= 3e-5 * size);
        }
}

/* --- refusals --- */

static void refusals(void **state)
{
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(2, 3), 1);
    choir_tensor *whole = choir_full(step, CHOIR_I64, choir_dims(2, 3), 1);
    assert_refused(choir_std_dim(whole, 0, 1, false), CHOIR_ERR_DTYPE,
        "std: expected a floating tensor, got i64");
    assert_refused(
        choir_erf(whole), CHOIR_ERR_DTYPE, "erf: expected a floating tensor, got i64");
    assert_refused(choir_maximum(x, whole), CHOIR_ERR_DTYPE, "maximum: expected two floating");
    assert_refused(choir_tril(whole, 0), CHOIR_ERR_SHAPE, "tril: expected floating matrices");
    assert_refused(choir_flip(x, 2), CHOIR_ERR_SHAPE, "flip: (2, 3) has no dimension 2");
    assert_refused(choir_softplus(x, 0, 20), CHOIR_ERR_ARGUMENT, "a beta that is not 0");
    assert_refused(choir_leaky_relu(x, NAN), CHOIR_ERR_ARGUMENT, "expected a number, got nan");
    assert_refused(choir_pixel_shuffle(x, 2), CHOIR_ERR_SHAPE, "images (N, C r^2, H, W)");
    assert_refused(choir_unfold(x, 1, 1, choir_conv_defaults()), CHOIR_ERR_SHAPE, "unfold");
    assert_refused(
        choir_grid_sample(x, x, CHOIR_LINEAR, false, false), CHOIR_ERR_SHAPE, "grid_sample");
    assert_refused(choir_fft(x), CHOIR_ERR_SHAPE, "fft: expected floating numbers (..., n, 2)");
    assert_refused(
        choir_arange(step, CHOIR_F32, 0, 3, -1), CHOIR_ERR_ARGUMENT, "a step that leads");
    assert_refused(
        choir_randint(step, choir_dims(2), "r", 3, 3), CHOIR_ERR_ARGUMENT, "randint");
    assert_refused(choir_multinomial(x, 4, false, "m"), CHOIR_ERR_ARGUMENT,
        "1 to 3 draws without replacement, got 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCOPES(gradients),
        IN_SCOPES(in_a_row),
        IN_SCOPES(sets),
        IN_SCOPES(draws),
        IN_SCOPES(halves),
        IN_SCOPES(refusals),
    };
    return cmocka_run_group_tests_name("ops made of others", tests, NULL, NULL);
}
