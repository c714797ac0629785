/* Parzen estimates: densities over some parameters, as a weighted sum of one kernel per
 * observed trial and one wide kernel, the prior.
 *
 *     density(x) = sum over kernels k of  weight(k) * product over parameters of kernel(k, x)
 *
 * A kernel is a normal distribution cut off at the ends of the range (whole numbers: its mass
 * in the number's cell), or a table for a choice. All numbers are in unit coordinates: inner
 * coordinates (space/space.h), moved and scaled to [0, 1].
 *
 * Source: Watanabe, "Tree-structured Parzen estimator: understanding its algorithm components
 * and their roles for better empirical performance" (2023); the rules for widths are Optuna's.
 */
#ifndef CHOIR_TUNE_PARZEN_H
#define CHOIR_TUNE_PARZEN_H

#include "tune/sampler/sampler.h"

/* The rule for the widths of kernels. */
typedef enum choir__width_rule {
    CHOIR__WIDTH_NEIGHBOURS, /* distance to the farther neighbour, as in Optuna 5, and in
                                Optuna 4 for one parameter */
    CHOIR__WIDTH_SCOTT       /* 0.2 n^(-1/(d+4)), as in Optuna 4 for several parameters */
} choir__width_rule;

/* The latest width of an observation's kernel, and the `norm` that follows from it, which takes
 * long to compute and rarely changes. */
typedef struct choir__kernel_mass {
    double sigma, log; /* sigma 0: unknown */
} choir__kernel_mass;

/* One parameter's kernels. The arrays have count + 1 elements; the last is the prior. */
typedef struct choir__parzen_kernels {
    const choir__dist *dist;
    double low, scale; /* inner = low + scale * unit */
    bool cells;        /* whole numbers, few enough that their cells' masses are computed */
    double *mu;
    double *sigma, *over;  /* over: 1 / sigma */
    double *norm;          /* log of each kernel's divisor, such as its mass inside the range */
    const int32_t *sorted; /* (count) the observations' indices, in the order of mu */
} choir__parzen_kernels;

typedef struct choir__parzen {
    int dims;
    choir__parzen_kernels *of; /* (dims) */
    int64_t count;             /* observations */
    double *weight;            /* (count + 1) sum 1 */
    double *base;              /* (count + 1) log of all factors that do not depend on x */
    double *scratch;           /* (count + 1) */
    int32_t *rows;             /* memory of of[d].sorted; freed with the estimate */
} choir__parzen;

/* Returns an estimate over parameters with room for `count` observations. */
choir__parzen *choir__parzen_new(const choir__dist *const *dist, int dims, int64_t count);
void choir__parzen_free(choir__parzen *p);

/* Fills in the kernels. The caller has stored the observations in of[d].mu (count), oldest
 * first, as unit coordinates or indices of choices, and their order by coordinate in
 * of[d].sorted (count). mass: (dims) (count) pointers to the masses of an earlier fit, which
 * this one updates; NULL: none. */
void choir__parzen_fit(
    choir__parzen *p, choir__width_rule rule, choir__kernel_mass *const *const *mass);

/* Draws x (dims): unit coordinates, or indices of choices. Whole numbers are rounded. */
void choir__parzen_draw(const choir__parzen *p, choir__draws *draws, double *x);
/* Returns the logarithm of the density at x. */
double choir__parzen_log(const choir__parzen *p, const double *x);

/* Convert between values and unit coordinates. */
double choir__to_unit(const choir__parzen_kernels *k, double value);
double choir__from_unit(const choir__parzen_kernels *k, double unit);

#endif
