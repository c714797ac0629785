/* BOHB's densities: widths follow from the points' deviation and number; a draw takes a point
 * at random and moves each coordinate by its kernel; a density is the mean of products of
 * kernels. */
#include "base/math/functions.h"
#include "tune/sampler/bohb/density.h"

#include <math.h>
#include <stdlib.h>

#include "tune/space/normal.h"

static const double least_width = 1e-3;

choir__density *choir__density_new(int64_t count, int dims, const int *places)
{
    choir__density *d = choir__calloc(1, sizeof *d);
    *d = (choir__density){.dims = dims, .places = places, .count = count};
    d->x = choir__calloc((size_t)(count * dims), sizeof(double));
    d->width = choir__calloc((size_t)dims, sizeof(double));
    return d;
}

void choir__density_free(choir__density *d)
{
    if (!d)
        return;
    free(d->x);
    free(d->width);
    free(d);
}

void choir__density_fit(choir__density *d)
{
    /* share of the width at which all places are equally likely, for one point */
    static const double widest_choice = 0.25;
    double n = (double)d->count, narrower = choir__pow(n, -1.0 / (d->dims + 4));
    for (int p = 0; p < d->dims; p++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < d->count; i++)
            mean += d->x[i * d->dims + p] / n;
        for (int64_t i = 0; i < d->count; i++) {
            double off = d->x[i * d->dims + p] - mean;
            square += off * off / n;
        }
        d->width[p] = fmax(1.06 * narrower * sqrt(square), least_width);
        if (d->places[p])
            d->width[p] = widest_choice * narrower * (1 - 1.0 / d->places[p]);
    }
}

/* Draws from the normal distribution around mu, cut off at 0 and 1. */
static double draw_number(double mu, double sigma, choir__draws *draws)
{
    double a = choir__normal_cdf(-mu / sigma), b = choir__normal_cdf((1 - mu) / sigma);
    double u = fmin(fmax(a + (b - a) * choir__draw(draws), 1e-300), 1 - 1e-16);
    return fmin(fmax(mu + sigma * choir__normal_quantile(u), 0), 1);
}

void choir__density_draw(const choir__density *d, double wider, choir__draws *draws, double *x)
{
    int64_t i = (int64_t)(choir__draw(draws) * (double)d->count);
    for (int p = 0; p < d->dims; p++) {
        double mu = d->x[i * d->dims + p];
        if (!d->places[p])
            x[p] = draw_number(mu, wider * d->width[p], draws);
        else if (choir__draw(draws) < 1 - d->width[p])
            x[p] = mu;
        else
            x[p] = floor(choir__draw(draws) * d->places[p]);
    }
}

double choir__density_at(const choir__density *d, const double *x)
{
    double sum = 0, factor = 1 / (double)d->count;
    for (int p = 0; p < d->dims; p++)
        factor *= d->places[p] ? 1 : 0.39894228040143267794 / d->width[p];
    for (int64_t i = 0; i < d->count; i++) {
        const double *at = d->x + i * d->dims;
        double exponent = 0, product = 1;
        for (int p = 0; p < d->dims; p++) {
            double h = d->width[p], z = (x[p] - at[p]) / h;
            if (!d->places[p])
                exponent -= 0.5 * z * z;
            else
                product *= x[p] == at[p] ? 1 - h : h / (d->places[p] - 1);
        }
        sum += product * choir__exp(exponent);
    }
    return factor * sum;
}
