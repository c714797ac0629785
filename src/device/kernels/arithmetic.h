/* Arithmetic that every backend's kernels share, so that it is written once: the corrections of
 * an optimizer's step, the taps of a stretched line, the turns of an SVD. The kernel
 * table declares the structs. */
#ifndef CHOIR_KERNELS_ARITHMETIC_H
#define CHOIR_KERNELS_ARITHMETIC_H

#include <math.h>

#include "base/math/functions.h"
#include "device/kernels.h"

/* The kernels of GPUs, which are C++, have a pow of their own. */
#ifdef __cplusplus
#define CHOIR__BIAS_POW pow
#else
#define CHOIR__BIAS_POW choir__pow
#endif

/* Sets the numbers of h that depend on the number of steps before this one. */
CHOIR__BOTH static inline void choir__opt_correct(
    choir__opt_hyper *h, choir__opt_bias bias, int64_t steps)
{
    double t = (double)steps + 1;
    double bias1 = 1 - CHOIR__BIAS_POW((double)h->beta1, t);
    double bias2 = 1 - CHOIR__BIAS_POW((double)h->beta2, t);
    h->first = steps == 0;
    if (bias == CHOIR__BIAS_ADAM) {
        h->step_size = (float)((double)h->lr / bias1);
        h->rsqrt_bias2 = (float)(1 / sqrt(bias2));
    } else if (bias == CHOIR__BIAS_LAMB) {
        h->inv_bias1 = (float)(1 / bias1);
        h->inv_bias2 = (float)(1 / bias2);
    } else if (bias == CHOIR__BIAS_ADAFACTOR) {
        h->step_size = (float)fmin((double)h->lr, 1 / sqrt(t));
        h->take1 = (float)CHOIR__BIAS_POW(t, (double)h->beta2);
    }
}

/* Returns the place of entry i among the entries from which it is made. */
CHOIR__BOTH static inline double choir__stretch_place(const choir__k_stretch *k, double i)
{
    double from = (double)k->from, to = (double)k->to;
    if (k->how == CHOIR__STRETCH_NEAREST) /* as PyTorch rounds it, so that floors agree */
        return (double)((float)i * ((float)from / (float)to));
    if (k->corners)
        return k->to > 1 ? i * (from - 1) / (to - 1) : 0;
    return (i + 0.5) * from / to - 0.5;
}

/* The weight of an entry at distance x from the place (Keys, 1981). */
CHOIR__BOTH static inline double choir__cubic_weight(double x)
{
    const double a = -0.75;
    return x <= 1 ? ((a + 2) * x - (a + 3)) * x * x + 1
                  : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

CHOIR__BOTH static inline choir__taps choir__taps_of(const choir__k_stretch *k, int64_t i)
{
    choir__taps taps = {{0}, {1}, 1};
    double place = choir__stretch_place(k, (double)i);
    if (k->how == CHOIR__STRETCH_LINEAR && place < 0)
        place = 0;
    int64_t first = (int64_t)floor(place);
    double past = place - (double)first;
    if (k->how == CHOIR__STRETCH_CUBIC)
        first--;
    taps.count = k->how == CHOIR__STRETCH_NEAREST ? 1 : k->how == CHOIR__STRETCH_LINEAR ? 2 : 4;
    for (int t = 0; t < taps.count; t++) {
        int64_t at = first + t;
        taps.at[t] = at < 0 ? 0 : at < k->from ? at : k->from - 1;
        if (k->how == CHOIR__STRETCH_LINEAR)
            taps.weight[t] = t ? past : 1 - past;
        if (k->how == CHOIR__STRETCH_CUBIC)
            taps.weight[t] = choir__cubic_weight(fabs(past + 1 - t));
    }
    return taps;
}

/* Stores a range [*first, *end) of i that contains all whose taps include entry j: the places
 * grow with i, and taps are less than two entries away, except at the edges. */
CHOIR__BOTH static inline void choir__stretch_users(
    const choir__k_stretch *k, int64_t j, int64_t *first, int64_t *end)
{
    *first = 0, *end = k->to;
    if (k->from == 1)
        return;
    double apart = k->corners
                       ? (double)(k->to - 1) / (double)(k->from - 1)
                       : (double)k->to / (double)k->from; /* places of i that are 1 apart */
    double low = floor((double)(j - 2) * apart) - 2, high = ceil((double)(j + 3) * apart) + 3;
    if (j > 0 && low > 0)
        *first = low < (double)k->to ? (int64_t)low : k->to;
    if (j + 1 < k->from && high < (double)k->to)
        *end = (int64_t)high;
}

/* Returns true, with the turn that brings them to right angles, unless two columns of m entries
 * are there already, up to rounding. pp, qq: the squares of their lengths; pq: their product.
 */
CHOIR__BOTH static inline bool choir__turn_of(
    double pp, double qq, double pq, int64_t m, choir__turn *turn)
{
    if (!(fabs(pq) > 2.3e-16 * sqrt((double)m) * sqrt(pp) * sqrt(qq)))
        return false;
    double zeta = (qq - pp) / (2 * pq);
    double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(zeta * zeta + 1));
    turn->c = 1 / sqrt(t * t + 1);
    turn->s = turn->c * t;
    return true;
}

/* Returns the power of two that divides a matrix so that squares of its entries are
 * numbers. most: the greatest magnitude. */
CHOIR__BOTH static inline double choir__svd_scale(double most)
{
    return most > 1e150 ? 0x1p600 : most < 1e-150 && most > 0 ? 0x1p-600 : 1;
}

#endif
