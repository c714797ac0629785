/* CMA-ES: a draw is the mean plus axes of the covariance times normal numbers, drawn again
 * while it is outside of the cube. A generation moves the mean, the two paths, the covariance
 * and sigma. The names of constants are the tutorial's. */
#include "base/math/functions.h"
#include "tune/sampler/cmaes/evolution.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/algebra.h"
#include "tune/space/normal.h"

enum { REDRAWS = 100 };

struct choir__evolution {
    int dims;
    int64_t population, generation;
    double sigma, begun; /* begun: the first sigma */
    double mu_eff, c_1, c_mu, c_c, c_sigma, d_sigma, chi;
    double *weight; /* (population) */
    double *mean;   /* (dims) */
    double *path, *path_sigma;
    double *c; /* (dims, dims) covariance over sigma^2 */
    double *axis,
        *length; /* (dims, dims) c's eigenvectors in columns, (dims) roots of values */
    double *y, *z, *scratch; /* (population, dims), (dims), (dims, dims) */
    double *range;           /* (window) best values of the last generations */
    int64_t window;
    double worst; /* value of the last generation */
    bool broken;  /* the covariance has lost its shape */
};

/* --- constants --- */

static void set_weights(choir__evolution *e)
{
    int64_t n = e->population, half = n / 2;
    double d = e->dims, plus = 0, minus = 0, plus_2 = 0, minus_2 = 0;
    for (int64_t i = 0; i < n; i++) {
        double w = choir__log(((double)n + 1) / 2) - choir__log((double)i + 1);
        e->weight[i] = w;
        if (i < half)
            plus += w, plus_2 += w * w;
        else
            minus += w, minus_2 += w * w;
    }
    double mu_minus = minus * minus / minus_2;
    e->mu_eff = plus * plus / plus_2;
    e->c_1 = 2 / ((d + 1.3) * (d + 1.3) + e->mu_eff);
    e->c_mu = fmin(1 - e->c_1 - 1e-8,
        2 * (e->mu_eff - 2 + 1 / e->mu_eff) / ((d + 2) * (d + 2) + e->mu_eff));
    double most = fmin(1 + e->c_1 / e->c_mu,
        fmin(1 + 2 * mu_minus / (e->mu_eff + 2), (1 - e->c_1 - e->c_mu) / (d * e->c_mu)));
    double positive = 0, negative = 0;
    for (int64_t i = 0; i < n; i++)
        *(e->weight[i] >= 0 ? &positive : &negative) += fabs(e->weight[i]);
    for (int64_t i = 0; i < n; i++)
        e->weight[i] *= e->weight[i] >= 0 ? 1 / positive : most / negative;
    e->c_sigma = (e->mu_eff + 2) / (d + e->mu_eff + 5);
    e->d_sigma = 1 + 2 * fmax(0, sqrt((e->mu_eff - 1) / (d + 1)) - 1) + e->c_sigma;
    e->c_c = (4 + e->mu_eff / d) / (d + 4 + 2 * e->mu_eff / d);
    e->chi = sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d));
}

choir__evolution *choir__evolution_new(
    int dims, int64_t population, const double *mean, double sigma)
{
    choir__evolution *e = choir__calloc(1, sizeof *e);
    size_t d = (size_t)dims, n = (size_t)population;
    *e = (choir__evolution){
        .dims = dims, .population = population, .sigma = sigma, .begun = sigma};
    e->window = 10 + (30 * dims + population - 1) / population;
    double *at = e->weight =
        choir__calloc(n + n * d + 5 * d + 3 * d * d + (size_t)e->window, sizeof *at);
    e->y = at += n;
    e->mean = at += n * d;
    e->path = at += d;
    e->path_sigma = at += d;
    e->length = at += d;
    e->z = at += d;
    e->c = at += d;
    e->axis = at += d * d;
    e->scratch = at += d * d;
    e->range = at += d * d;
    memcpy(e->mean, mean, d * sizeof *mean);
    for (size_t i = 0; i < d; i++)
        e->c[i * d + i] = e->axis[i * d + i] = e->length[i] = 1;
    set_weights(e);
    return e;
}

void choir__evolution_free(choir__evolution *e)
{
    if (!e)
        return;
    free(e->weight);
    free(e);
}

/* --- drawing --- */

void choir__evolution_draw(const choir__evolution *e, choir__draws *draws, double *x)
{
    bool inside = false;
    for (int attempt = 0; attempt < REDRAWS && !inside; attempt++) {
        inside = true;
        memcpy(x, e->mean, (size_t)e->dims * sizeof *x);
        for (int k = 0; k < e->dims; k++) {
            double u = choir__draw(draws) + 0x1p-54;
            double z = e->sigma * e->length[k] * choir__normal_quantile(u);
            for (int i = 0; i < e->dims; i++)
                x[i] += e->axis[i * e->dims + k] * z;
        }
        for (int i = 0; i < e->dims; i++)
            inside = inside && x[i] >= 0 && x[i] <= 1;
    }
    for (int i = 0; i < e->dims; i++)
        x[i] = fmin(fmax(x[i], 0), 1);
}

/* --- a generation --- */

/* z = c^(-1/2) y: steps in units of the distribution. Returns the length of z. */
static double whiten(const choir__evolution *e, const double *y, double *z)
{
    int d = e->dims;
    memset(z, 0, (size_t)d * sizeof *z);
    double square = 0;
    for (int k = 0; k < d; k++) {
        double along = 0;
        for (int i = 0; i < d; i++)
            along += e->axis[i * d + k] * y[i];
        along /= e->length[k];
        square += along * along;
        for (int i = 0; i < d; i++)
            z[i] += e->axis[i * d + k] * along;
    }
    return sqrt(square);
}

/* Stores the steps from the mean to the points in e->y, and their whitened lengths. Steps that
 * the distribution hardly ever makes, to points of another one, are shortened. */
static void find_steps(choir__evolution *e, const double *x, double *length)
{
    int d = e->dims;
    double most = sqrt(d) + 3;
    for (int64_t k = 0; k < e->population; k++) {
        double *y = e->y + k * d;
        for (int i = 0; i < d; i++)
            y[i] = (x[k * d + i] - e->mean[i]) / e->sigma;
        length[k] = whiten(e, y, e->z);
        for (int i = 0; i < d && length[k] > most; i++)
            y[i] *= most / length[k];
        length[k] = fmin(length[k], most);
    }
}

static void adapt_covariance(choir__evolution *e, const double *length, bool moving)
{
    int d = e->dims;
    double sum = 0, kept = moving ? 0 : e->c_c * (2 - e->c_c);
    for (int64_t k = 0; k < e->population; k++)
        sum += e->weight[k];
    double decay = 1 + e->c_1 * kept - e->c_1 - e->c_mu * sum;
    for (int i = 0; i < d; i++)
        for (int j = 0; j <= i; j++) {
            double c = decay * e->c[i * d + j] + e->c_1 * e->path[i] * e->path[j];
            for (int64_t k = 0; k < e->population; k++) {
                double w = e->weight[k];
                if (w < 0)
                    w *= d / (length[k] * length[k] + 1e-8);
                c += e->c_mu * w * e->y[k * d + i] * e->y[k * d + j];
            }
            e->c[i * d + j] = e->c[j * d + i] = c;
        }
}

/* Computes the axes of the covariance. */
static void find_axes(choir__evolution *e)
{
    size_t all = (size_t)e->dims * (size_t)e->dims * sizeof(double);
    double least = (double)INFINITY, most = 0;
    memcpy(e->scratch, e->c, all);
    choir__eigen(e->scratch, e->dims, e->axis, e->length);
    for (int i = 0; i < e->dims; i++) {
        least = fmin(least, e->length[i]);
        most = fmax(most, e->length[i]);
        e->length[i] = sqrt(fmax(e->length[i], 1e-16));
    }
    e->broken = !(least > 0 && most < 1e14 * least && isfinite(e->sigma));
}

void choir__evolution_step(choir__evolution *e, const double *x, double best, double worst)
{
    int d = e->dims;
    double *length = choir__alloc((size_t)(e->population + d) * sizeof *length);
    double *mean_step = length + e->population;
    find_steps(e, x, length);
    memset(mean_step, 0, (size_t)d * sizeof *mean_step);
    for (int64_t k = 0; k < e->population && e->weight[k] >= 0; k++)
        for (int i = 0; i < d; i++)
            mean_step[i] += e->weight[k] * e->y[k * d + i];
    whiten(e, mean_step, e->z);
    double keep = sqrt(e->c_sigma * (2 - e->c_sigma) * e->mu_eff);
    for (int i = 0; i < d; i++) {
        e->mean[i] += e->sigma * mean_step[i];
        e->path_sigma[i] = (1 - e->c_sigma) * e->path_sigma[i] + keep * e->z[i];
    }
    double norm = sqrt(choir__dot(e->path_sigma, e->path_sigma, d));
    double begin = sqrt(1 - choir__pow(1 - e->c_sigma, 2 * ((double)e->generation + 1)));
    bool moving = norm / begin < (1.4 + 2.0 / (d + 1)) * e->chi;
    keep = moving ? sqrt(e->c_c * (2 - e->c_c) * e->mu_eff) : 0;
    for (int i = 0; i < d; i++)
        e->path[i] = (1 - e->c_c) * e->path[i] + keep * mean_step[i];
    adapt_covariance(e, length, moving);
    e->sigma *= choir__exp(fmin(1, e->c_sigma / e->d_sigma * (norm / e->chi - 1)));
    e->range[e->generation++ % e->window] = best;
    e->worst = worst;
    find_axes(e);
    free(length);
}

bool choir__evolution_ended(const choir__evolution *e)
{
    double low = e->worst, high = e->worst, wide = 0;
    for (int64_t i = 0; i < e->window; i++)
        low = fmin(low, e->range[i]), high = fmax(high, e->range[i]);
    for (int i = 0; i < e->dims; i++)
        wide = fmax(wide, e->sigma * sqrt(e->c[i * e->dims + i]));
    return e->broken || wide < 1e-12 * e->begun ||
           (e->generation >= e->window && high - low < 1e-12);
}
