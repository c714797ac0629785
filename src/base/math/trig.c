/* sin, cos, tan, atan.
 *
 *   x = n pi/128 + r,  |r| <= pi/256:  sin x = S cos r + C sin r,  S + i C = exp(i n pi/128)
 *
 * where S and C come from a table, and cos r and sin r are the beginnings of their series. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/math/tables.h"

typedef struct reduced {
    int n; /* modulo 256 */
    dd r;
} reduced;

/* |x| 2^192 / (2 pi) without whole turns, as three words, the highest first. With |x| = m 2^e,
 * bits of 1 / (2 pi) up to the e-th give whole turns. */
static void turns(double x, uint64_t turn[3])
{
    int e;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(x), &e), 53), window[3];
    int first = e - 53 + 64; /* the table has 64 bits of zeros in front */
    for (int i = 0; i < 3; i++) {
        const uint64_t *word = &choir__turn_bits[first / 64 + i];
        int shift = first % 64;
        window[i] = shift ? word[0] << shift | word[1] >> (64 - shift) : word[0];
    }
    unsigned __int128 carry = 0;
    for (int i = 2; i >= 0; i--) {
        carry += (unsigned __int128)window[i] * m;
        turn[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

/* For every |x| >= pi/256. The error of r is less than 2^-130, and no double is closer than
 * 2^-62 to a multiple of pi/2, where a sine or cosine is as small as r. */
static reduced reduce_exactly(double x)
{
    uint64_t turn[3];
    turns(x, turn);
    int n = (int)(((turn[0] >> 55) + 1) >> 1); /* rounded: in 0..256 */
    turn[0] -= (uint64_t)n << 56;              /* a remainder in two's complement */
    uint64_t sign = turn[0] >> 63 ? UINT64_MAX : 0;
    unsigned __int128 upper = (unsigned __int128)(turn[0] ^ sign) << 64 | (turn[1] ^ sign);
    uint64_t lower = turn[2] ^ sign; /* -x is ~x + 1: its last bit is beyond the precision */
    int shift = 0;
    while (shift < 127 && !(upper >> 127)) {
        upper = upper << 1 | lower >> 63;
        lower <<= 1;
        shift++;
    }
    uint64_t high = (uint64_t)(upper >> 64), low = (uint64_t)upper;
    double first = (double)(high & ~(uint64_t)0x7ff);           /* 53 bits */
    double second = (double)((high & 0x7ff) << 42 | low >> 22); /* the next 53 */
    dd part = {ldexp(first, -64 - shift), ldexp(second, -106 - shift)};
    dd r = dd_multiply(part, (dd){0x1.921fb54442d18p2, 0x1.1a62633145c07p-52}); /* 2 pi */
    if ((sign != 0) != (x < 0))
        r.hi = -r.hi, r.lo = -r.lo;
    return (reduced){x < 0 ? -n : n, r};
}

static inline reduced reduce(double x)
{
    /* pi/128 in three parts; n times the first or the second one, of 30 bits, is exact */
    static const double part[3] = {0x1.921fb54p-6, 0x1.10b46118p-36, 0x1.313198a2e037p-67};
    if (!(fabs(x) < 0x1p17))
        return reduce_exactly(x);
    double n = dd_round(x * 0x1.45f306dc9c883p5);
    dd r = dd_sum(x - n * part[0], -n * part[1]);
    if (n != 0 && fabs(r.hi) < 0x1p-20)
        return reduce_exactly(x); /* the parts leave too few digits */
    return (reduced){(int)n, dd_sum_sorted(r.hi, r.lo - n * part[2])};
}

/* sin r and cos r as sums: r + sine, 1 + cosine; upper has the first 26 bits of r. */
typedef struct small_angle {
    dd r;
    double upper, sine, cosine;
} small_angle;

static inline small_angle small(dd r)
{
    double z = r.hi * r.hi;
    double sine = ((1.0 / 120 - z * (1.0 / 5040)) * z - 1.0 / 6) * z * r.hi;
    double cosine = (1.0 / 24 - z * (1.0 / 720)) * z * z - (0.5 * z + r.hi * r.lo);
    return (small_angle){r, dd_upper(r.hi), sine, cosine};
}

/* The sine of i pi/128, whose first part has 26 bits, without branches that a processor would
 * predict wrongly. */
static inline dd sine_of(int i)
{
    dd s = choir__sin_table[64 - abs(64 - (i & 127))];
    double sign = 1 - 2 * (i >> 7 & 1);
    return (dd){sign * s.hi, sign * s.lo};
}

/* sin(i pi/128 + r) */
static inline dd sine(int i, small_angle a)
{
    dd s = sine_of(i), c = sine_of(i + 64), sum = dd_sum(s.hi, c.hi * a.upper);
    double rest = c.lo * a.r.hi + c.hi * ((a.r.hi - a.upper) + a.r.lo);
    rest += (s.hi + s.lo) * a.cosine + (c.hi + c.lo) * a.sine;
    return dd_sum_sorted(sum.hi, sum.lo + (s.lo + rest));
}

/* An infinity's NaN has one sign on all processors. */
static double not_finite(double x)
{
    return isnan(x) ? x : NAN;
}

double choir__sin(double x)
{
    if (fabs(x) < 0x1p-27)
        return x; /* -0, too */
    if (!isfinite(x))
        return not_finite(x);
    reduced at = reduce(x);
    dd y = sine(at.n, small(at.r));
    return y.hi + y.lo;
}

double choir__cos(double x)
{
    if (!isfinite(x))
        return not_finite(x);
    reduced at = reduce(x);
    dd y = sine(at.n + 64, small(at.r));
    return y.hi + y.lo;
}

void choir__sin_cos(double x, double *s, double *c)
{
    if (fabs(x) < 0x1p-27 || !isfinite(x)) {
        *s = choir__sin(x);
        *c = choir__cos(x);
        return;
    }
    reduced at = reduce(x);
    small_angle a = small(at.r);
    dd y = sine(at.n, a), z = sine(at.n + 64, a);
    *s = y.hi + y.lo;
    *c = z.hi + z.lo;
}

double choir__tan(double x)
{
    if (fabs(x) < 0x1p-27)
        return x;
    if (!isfinite(x))
        return not_finite(x);
    reduced at = reduce(x);
    small_angle a = small(at.r);
    dd y = dd_divide(sine(at.n, a), sine(at.n + 64, a));
    return y.hi + y.lo;
}

/* atan x = atan c + atan t with t = (x - c) / (1 + x c), c the multiple of 1/16 next to x;
 * above 1 it is pi/2 - atan(1 / x). */
double choir__atan(double x)
{
    static const dd right_angle = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54};
    double a = fabs(x);
    if (isnan(x) || a < 0x1p-27)
        return x;
    if (a > 0x1p60)
        return copysign(right_angle.hi, x);
    int i = (int)((a > 1 ? 1 / a : a) * 16 + 0.5);
    double c = i * 0x1p-4;
    dd numerator = dd_sum(a, -c), denominator = dd_sum(a, c), product = dd_product(a, c);
    if (a > 1)
        numerator = dd_add((dd){1, 0}, (dd){-product.hi, -product.lo});
    else
        denominator = dd_add((dd){1, 0}, product);
    dd t = dd_divide(numerator, denominator);
    double z = t.hi * t.hi, p = z * (1.0 / 13) - 1.0 / 11;
    p = (p * z + 1.0 / 9) * z - 1.0 / 7;
    p = (p * z + 1.0 / 5) * z - 1.0 / 3;
    t.lo += t.hi * z * p - z * t.lo;
    dd y = dd_add(choir__atan_table[i], t);
    if (a > 1)
        y = dd_add(right_angle, (dd){-y.hi, -y.lo});
    return copysign(y.hi + y.lo, x);
}
