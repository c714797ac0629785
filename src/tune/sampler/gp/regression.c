/* Gaussian processes: weights, scale and noise minimise minus the logarithm of likelihood and
 * priors, by its gradient; the factor of the covariance then gives the mean and variance at any
 * point. Squares of distances are computed once per fit. */
#include "base/math/functions.h"
#include "tune/sampler/gp/regression.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/algebra.h"
#include "tune/sampler/gp/minimize.h"

static const double least_noise = 1e-6;

choir__regression *choir__regression_new(int64_t count, int dims, const bool *is_choice)
{
    choir__regression *r = choir__calloc(1, sizeof *r);
    size_t n = (size_t)count, d = (size_t)dims;
    *r = (choir__regression){.dims = dims, .is_choice = is_choice, .scale = 1, .noise = 1};
    r->x = choir__calloc(n * d, sizeof(double));
    r->y = choir__calloc(n, sizeof(double));
    r->alpha = choir__calloc(n, sizeof(double));
    r->weight = choir__calloc(d, sizeof(double));
    r->factor = choir__calloc(n * n, sizeof(double));
    return r;
}

void choir__regression_free(choir__regression *r)
{
    if (!r)
        return;
    free(r->x);
    free(r->y);
    free(r->alpha);
    free(r->weight);
    free(r->factor);
    free(r);
}

/* The square of the distance between two coordinates. */
static double square_distance(bool is_choice, double a, double b)
{
    if (isnan(a) || isnan(b)) {
        double x = (isnan(a) ? b : a) - 0.5;
        return isnan(a) && isnan(b) ? 0 : is_choice ? 1 : x * x + 0.75;
    }
    return is_choice ? a != b : (a - b) * (a - b);
}

/* matern52(sqrt(square)), and its derivative by the square. */
static double matern52(double square, double *slope)
{
    double z = sqrt(5 * square), e = choir__exp(-z);
    *slope = -5.0 / 6 * (1 + z) * e;
    return (5.0 / 3 * square + z + 1) * e;
}

/* --- fitting --- */

/* The kernel's parameters are exp(theta): weights, scale, and the noise above the least. */
typedef struct fit {
    const choir__regression *r;
    int64_t n;
    double *square; /* (dims, pairs) squares of distances between x[i] and x[j], j < i */
    double *sum;    /* (pairs) scratch: their weighted sums */
    double *kernel; /* (pairs) matern52 */
    double *slope;  /* (pairs) its derivative by the square */
    double *l, *inverse, *scratch;
    double *alpha;
} fit;

static int64_t pairs(int64_t n)
{
    return n * (n - 1) / 2;
}

/* The covariance of y, lower triangle, in f->l. */
static void fill_covariance(fit *f, const double *weight, double scale, double noise)
{
    int64_t n = f->n, count = pairs(n), at = 0;
    memset(f->sum, 0, (size_t)count * sizeof *f->sum);
    for (int p = 0; p < f->r->dims; p++)
        for (int64_t k = 0; k < count; k++)
            f->sum[k] += weight[p] * f->square[p * count + k];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++, at++) {
            f->kernel[at] = matern52(f->sum[at], &f->slope[at]);
            f->l[i * n + j] = scale * f->kernel[at];
        }
        f->l[i * n + i] = scale + noise;
    }
}

/* Minus the logarithm of the priors: of a weight w, -(0.1 / w + 0.1 w); of the scale, a gamma
 * density of shape 2 and rate 1; of the noise, of shape 1.1 and rate 30. */
static double add_priors(
    int dims, const double *weight, double scale, double noise, double *gradient)
{
    double value = 0;
    for (int p = 0; p < dims; p++) {
        value += 0.1 / weight[p] + 0.1 * weight[p];
        gradient[p] += -0.1 / weight[p] + 0.1 * weight[p];
    }
    gradient[dims] += scale - 1;
    gradient[dims + 1] += (30 * noise - 0.1) * (noise - least_noise) / noise;
    return value + scale - choir__log(scale) + 30 * noise - 0.1 * choir__log(noise);
}

/* d/dK of minus the marginal likelihood's logarithm is (inverse - alpha alpha') / 2. */
static void add_likelihood_gradient(
    fit *f, const double *weight, double scale, double noise, double *gradient)
{
    int64_t n = f->n, at = 0;
    int dims = f->r->dims;
    double diagonal = 0, by_scale = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < i; j++, at++) {
            double g = f->inverse[i * n + j] - f->alpha[i] * f->alpha[j];
            by_scale += g * f->kernel[at];
            f->sum[at] = g * scale * f->slope[at];
        }
        diagonal += 0.5 * (f->inverse[i * n + i] - f->alpha[i] * f->alpha[i]);
    }
    for (int p = 0; p < dims; p++)
        gradient[p] += weight[p] * choir__dot(f->sum, f->square + p * pairs(n), pairs(n));
    gradient[dims] += scale * (by_scale + diagonal);
    gradient[dims + 1] += (noise - least_noise) * diagonal;
}

/* Minus the logarithm of the posterior density, up to a constant. */
static double minus_log_posterior(void *of, const double *theta, double *gradient)
{
    fit *f = of;
    int dims = f->r->dims;
    double weight[CHOIR__MINIMIZE_MAX];
    for (int p = 0; p < dims; p++)
        weight[p] = choir__exp(theta[p]);
    double scale = choir__exp(theta[dims]), noise = choir__exp(theta[dims + 1]) + least_noise;
    memset(gradient, 0, (size_t)(dims + 2) * sizeof *gradient);
    fill_covariance(f, weight, scale, noise);
    if (!choir__cholesky(f->l, f->n))
        return (double)INFINITY;
    double value = 0;
    memcpy(f->alpha, f->r->y, (size_t)f->n * sizeof *f->alpha);
    choir__solve_lower(f->l, f->n, 0, f->alpha);
    value += 0.5 * choir__dot(f->alpha, f->alpha, f->n);
    choir__solve_lower_transposed(f->l, f->n, f->alpha);
    for (int64_t i = 0; i < f->n; i++)
        value += choir__log(f->l[i * f->n + i]);
    choir__invert(f->l, f->n, f->scratch, f->inverse);
    add_likelihood_gradient(f, weight, scale, noise, gradient);
    return value + add_priors(dims, weight, scale, noise, gradient);
}

static void fill_squares(fit *f)
{
    const choir__regression *r = f->r;
    double *at = f->square;
    for (int p = 0; p < r->dims; p++)
        for (int64_t i = 0; i < f->n; i++)
            for (int64_t j = 0; j < i; j++)
                *at++ = square_distance(
                    r->is_choice[p], r->x[i * r->dims + p], r->x[j * r->dims + p]);
}

void choir__regression_fit(choir__regression *r, int64_t count)
{
    size_t n = (size_t)count, all = n * n, some = (size_t)pairs(count);
    fit f = {.r = r, .n = count};
    double *memory =
        choir__alloc((3 * all + (size_t)(r->dims + 3) * some + n) * sizeof *memory);
    f.l = memory;
    f.inverse = f.l + all;
    f.scratch = f.inverse + all;
    f.slope = f.scratch + all;
    f.sum = f.slope + some;
    f.kernel = f.sum + some;
    f.square = f.kernel + some;
    f.alpha = f.square + (size_t)r->dims * some;
    fill_squares(&f);
    double theta[CHOIR__MINIMIZE_MAX] = {0}; /* all parameters 1 */
    double low[CHOIR__MINIMIZE_MAX], high[CHOIR__MINIMIZE_MAX];
    for (int p = 0; p < r->dims + 2; p++)
        low[p] = -30, high[p] = 30;
    choir__minimize(minus_log_posterior, &f, r->dims + 2, low, high, 1e-2, 100, theta);
    for (int p = 0; p < r->dims; p++)
        r->weight[p] = choir__exp(theta[p]);
    r->scale = choir__exp(theta[r->dims]);
    r->noise = choir__exp(theta[r->dims + 1]) + least_noise;
    free(memory);
}

/* --- predicting --- */

static double square_at(const choir__regression *r, const double *x, const double *z)
{
    double sum = 0;
    for (int p = 0; p < r->dims; p++)
        sum += r->weight[p] * square_distance(r->is_choice[p], x[p], z[p]);
    return sum;
}

void choir__regression_solve(choir__regression *r, int64_t count)
{
    double unused;
    int64_t n = r->count = count;
    do { /* rounding may spoil a covariance with little noise */
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < i; j++)
                r->factor[i * n + j] =
                    r->scale *
                    matern52(square_at(r, r->x + i * r->dims, r->x + j * r->dims), &unused);
            r->factor[i * n + i] = r->scale + r->noise;
        }
        if (choir__cholesky(r->factor, n))
            break;
        r->noise *= 10;
    } while (true);
    memcpy(r->alpha, r->y, (size_t)n * sizeof *r->alpha);
    choir__solve_lower(r->factor, n, 0, r->alpha);
    choir__solve_lower_transposed(r->factor, n, r->alpha);
}

/* k: (count) the kernel at x and each point. slope: (dims, count) its derivatives by x, or
 * NULL */
static void kernels_at(const choir__regression *r, const double *x, double *k, double *slope)
{
    for (int64_t i = 0; i < r->count; i++) {
        const double *z = r->x + i * r->dims;
        double by_square;
        k[i] = r->scale * matern52(square_at(r, x, z), &by_square);
        for (int p = 0; slope && p < r->dims; p++) {
            double apart = isnan(x[p]) ? 0 : isnan(z[p]) ? x[p] - 0.5 : x[p] - z[p];
            slope[p * r->count + i] =
                r->is_choice[p] ? 0 : r->scale * by_square * r->weight[p] * 2 * apart;
        }
    }
}

void choir__regression_predict(const choir__regression *r, const double *x, double *scratch,
    double *mean, double *variance, double *slope_mean, double *slope_variance)
{
    int64_t n = r->count;
    double *k = scratch, *v = k + n, *slope = slope_mean ? v + n : NULL;
    kernels_at(r, x, k, slope);
    memcpy(v, k, (size_t)n * sizeof *v);
    choir__solve_lower(r->factor, n, 0, v);
    *mean = choir__dot(k, r->alpha, n);
    *variance = fmax(r->scale - choir__dot(v, v, n), 1e-12 * r->scale);
    if (!slope)
        return;
    choir__solve_lower_transposed(r->factor, n, v);
    for (int p = 0; p < r->dims; p++) {
        slope_mean[p] = choir__dot(slope + p * n, r->alpha, n);
        slope_variance[p] = -2 * choir__dot(slope + p * n, v, n);
    }
}
