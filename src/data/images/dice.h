/* Random numbers of a sample's augmentation: Philox, in a fixed order from (seed, epoch,
 * index). */
#ifndef CHOIR_DATA_DICE_H
#define CHOIR_DATA_DICE_H

#include <stdint.h>

typedef struct choir__dice {
    uint64_t key, count;
    uint32_t bits[4];
} choir__dice;

/* what: the name of a sequence of its own. */
choir__dice choir__dice_of(uint64_t seed, const char *what, int64_t epoch, int64_t index);

/* Returns 32 random bits. */
uint32_t choir__dice_bits(choir__dice *r);
double choir__dice_normal(choir__dice *r);
double choir__dice_uniform(choir__dice *r, double low, double high);
/* Returns a number of Beta(a, a). */
double choir__dice_beta(choir__dice *r, double a);
/* Returns an integer from 0 to n - 1; all are equally likely, or each in proportion to its
 * weight; sums (n) are the weights' running sums. */
int64_t choir__dice_below(choir__dice *r, int64_t n);
int64_t choir__dice_weighted(choir__dice *r, const double *sums, int64_t n);

#endif
