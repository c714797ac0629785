/* Philox gives four numbers of 32 bits at a time; all others are made of them, in order. */
#include "data/images/dice.h"

#include <math.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "base/rng.h"

choir__dice choir__dice_of(uint64_t seed, const char *what, int64_t epoch, int64_t index)
{
    uint64_t key = choir__rng_key(seed, what);
    return (choir__dice){.key = choir__mix(choir__mix(key, (uint64_t)epoch), (uint64_t)index)};
}

uint32_t choir__dice_bits(choir__dice *r)
{
    if (r->count % 4 == 0)
        choir__philox(r->key, 0, r->count / 4, r->bits);
    return r->bits[r->count++ % 4];
}

double choir__dice_uniform(choir__dice *r, double low, double high)
{
    return low + (double)choir__unit(choir__dice_bits(r)) * (high - low);
}

int64_t choir__dice_below(choir__dice *r, int64_t n)
{
    uint64_t bits = (uint64_t)choir__dice_bits(r) << 32;
    bits |= choir__dice_bits(r);
    return (int64_t)((unsigned __int128)bits * (uint64_t)n >> 64);
}

double choir__dice_normal(choir__dice *r)
{
    double u = (choir__dice_bits(r) + 1.0) * 0x1p-32, one, other; /* u in (0, 1] */
    choir__normal_pair(u, 0x1p-32 * choir__dice_bits(r), &one, &other);
    return one;
}

/* Returns the logarithm of a number of Gamma(a, 1): Marsaglia and Tsang (2000) for a + 1, times
 * u^(1/a). The number itself may be too small for f64. */
static double log_gamma(choir__dice *r, double a)
{
    double d = a + 1 - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = choir__dice_normal(r), v = 1 + c * x,
               u = (choir__dice_bits(r) + 1.0) * 0x1p-32;
        v = v * v * v;
        if (v > 0 && choir__log(u) < 0.5 * x * x + d - d * v + d * choir__log(v))
            return choir__log(d * v) + choir__log((choir__dice_bits(r) + 1.0) * 0x1p-32) / a;
    }
}

double choir__dice_beta(choir__dice *r, double a)
{
    double one = log_gamma(r, a), other = log_gamma(r, a);
    return 1 / (1 + choir__exp(other - one));
}

int64_t choir__dice_weighted(choir__dice *r, const double *sums, int64_t n)
{
    uint64_t bits = (uint64_t)choir__dice_bits(r) << 32;
    bits |= choir__dice_bits(r);
    const double at = (double)(bits >> 11) * 0x1p-53 * sums[n - 1];
    int64_t low = 0, high = n - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (sums[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
