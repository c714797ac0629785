/* Densities as BOHB estimates them: one kernel per point, of a width per parameter that is the
 * same for all points.
 *
 *     of a number:  width = 1.06 * standard deviation * n^(-1 / (dims + 4)), at least 0.001
 *     of a choice:  width = 0.25 * (1 - 1 / places) * n^(-1 / (dims + 4))
 *
 * Numbers have normal kernels on [0, 1]; choices have Aitchison and Aitken's: 1 - width at
 * the point's place, width / (places - 1) at each other; all places are equally likely at a
 * width of 1 - 1 / places.
 *
 * Source: Falkner, Klein, Hutter, "BOHB: robust and efficient hyperparameter optimization at
 * scale" (2018), and its program HpBandSter, but for the widths of choices: HpBandSter takes
 * the standard deviation of their places' numbers, at which a choice of eight learns nothing.
 */
#ifndef CHOIR_TUNE_DENSITY_H
#define CHOIR_TUNE_DENSITY_H

#include "tune/sampler/sampler.h"

typedef struct choir__density {
    int dims;
    const int *places; /* (dims) number of places of a choice; 0: the parameter is a number */
    int64_t count;
    double *x;     /* (count, dims) numbers in [0, 1], places of choices */
    double *width; /* (dims) */
} choir__density;

/* Returns a density of `count` points; the caller fills in x. */
choir__density *choir__density_new(int64_t count, int dims, const int *places);
void choir__density_free(choir__density *d);
/* Computes the widths. */
void choir__density_fit(choir__density *d);
/* Draws x (dims) near a point; numbers with kernels that are `wider` times as wide. */
void choir__density_draw(const choir__density *d, double wider, choir__draws *draws, double *x);
double choir__density_at(const choir__density *d, const double *x);

#endif
