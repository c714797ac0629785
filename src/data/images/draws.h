/* Random numbers of a sample's augmentation: Philox, in a fixed order from (seed, epoch,
 * index). */
#ifndef CHOIR_DATA_DRAWS_H
#define CHOIR_DATA_DRAWS_H

#include <stdint.h>

typedef struct choir__draws {
    uint64_t key, count;
    uint32_t bits[4];
} choir__draws;

/* what: the name of a sequence of its own. */
choir__draws choir__draws_of(uint64_t seed, const char *what, int64_t epoch, int64_t index);

/* Returns 32 random bits. */
uint32_t choir__draw(choir__draws *r);
double choir__draw_normal(choir__draws *r);
double choir__draw_uniform(choir__draws *r, double low, double high);
/* Returns a number of Beta(a, a). */
double choir__draw_beta(choir__draws *r, double a);
/* Returns an integer from 0 to n - 1; all are equally likely, or each in proportion to its
 * weight; sums (n) are the weights' running sums. */
int64_t choir__draw_below(choir__draws *r, int64_t n);
int64_t choir__draw_weighted(choir__draws *r, const double *sums, int64_t n);

#endif
