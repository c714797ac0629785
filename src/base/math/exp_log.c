/* exp and log, and the functions that are made of them: expm1, tanh, erfc, erf, pow.
 *
 *   x = n ln 2 / 128 + r,  |r| <= ln 2 / 256:  exp x = 2^(n / 128) (1 + r + r^2 P(r))
 *
 * where 2^(i/128) comes from a table, and P is the beginning of the series; log_split.h has the
 * formula of log. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/math/log_split.h"

/* ln 2 / 128 in two parts; n times the first one, of 35 bits, is exact. */
static const double step = 0x1.62e42fef8p-8, step_low = 0x1.1cf79abc9e3b4p-43;
static const double per_step = 0x1.71547652b82fep7; /* 128 / ln 2 */

/* A value m 2^k. */
typedef struct scaled {
    dd m;
    int k;
} scaled;

/* exp x for |x| < 800, with a relative error below 2^-67; m.lo is below 2^-8 m.hi. */
static inline scaled exp_parts(dd x)
{
    double n = dd_round(x.hi * per_step);
    dd r = dd_sum_sorted(x.hi - n * step, -n * step_low); /* or both terms are below 2^-26 */
    r.lo += x.lo;
    double z = r.hi, square = z * z, upper = dd_upper(z);
    double p = (z * (1.0 / 120) + 1.0 / 24) + square * (1.0 / 720);
    double curve = square * (p * square + (z * (1.0 / 6) + 0.5)); /* exp r = 1 + r + curve */

    int whole = (int)n;
    dd t = choir__exp_table[whole & 127]; /* t.hi has 26 bits: t.hi upper is exact */
    dd m = dd_sum_sorted(t.hi, t.hi * upper);
    double rest = t.hi * ((z - upper) + r.lo + z * r.lo) + t.lo * z;
    m.lo += t.lo + (rest + (t.hi + t.lo) * curve);
    return (scaled){m, whole >> 7};
}

/* Rounds once, also to a denormal. */
static inline double round_scaled(scaled x)
{
    if (x.k > -1000 && x.k < 1000 && x.m.hi > 0x1p-20)
        return (x.m.hi + x.m.lo) * dd_power_of_2(x.k);
    x.m = dd_sum_sorted(x.m.hi, x.m.lo);
    if (dd_scale(x.m.hi, x.k) >= DBL_MIN)
        return dd_scale(x.m.hi + x.m.lo, x.k);
    /* Between this number and twice it, the last bit is worth 2^-1074 after scaling. */
    double beside = dd_scale(1, -1022 - x.k);
    dd sum = dd_sum(beside, x.m.hi);
    return dd_scale(sum.hi + (sum.lo + x.m.lo) - beside, x.k);
}

/* exp is called the most, so one double is enough for each value but the table's. */
double choir__exp(double x)
{
    if (fabs(x) < 690) {
        double n = dd_round(x * per_step), r = (x - n * step) - n * step_low, square = r * r;
        double p = (r * (1.0 / 120) + 1.0 / 24) + square * (1.0 / 720);
        double rise = r + square * (p * square + (r * (1.0 / 6) + 0.5)); /* exp r - 1 */
        int whole = (int)n;
        dd t = choir__exp_table[whole & 127];
        return (t.hi + (t.lo + (t.hi + t.lo) * rise)) * dd_power_of_2(whole >> 7);
    }
    if (!(x < 710))
        return x + INFINITY; /* NaN stays */
    if (x < -746)
        return 0;
    return round_scaled(exp_parts((dd){x, 0}));
}

/* exp x - 1; its series near 0, where the difference cancels. */
double choir__expm1(double x)
{
    if (isnan(x) || fabs(x) < 0x1p-54)
        return x;
    if (fabs(x) < 0x1p-6) {
        double p = (x * (1.0 / 40320) + 1.0 / 5040) * x + 1.0 / 720;
        p = ((p * x + 1.0 / 120) * x + 1.0 / 24) * x + 1.0 / 6;
        return x + x * x * (p * x + 0.5);
    }
    if (fabs(x) > 60)
        return x > 0 ? choir__exp(x) : -1;
    scaled s = exp_parts((dd){x, 0});
    dd e = {dd_scale(s.m.hi, s.k), dd_scale(s.m.lo, s.k)};
    dd y = dd_add(dd_sum_sorted(e.hi, e.lo), (dd){-1, 0});
    return y.hi + y.lo;
}

/* tanh x = (e - 1) / (e + 1) with e = exp 2x. Near 0, where e - 1 cancels, it is the series. */
double choir__tanh(double x)
{
    double a = fabs(x), z = x * x;
    if (isnan(x) || a < 0x1p-28)
        return x;
    if (a < 0x1p-6) {
        double p = z * (-1382.0 / 155925) + 62.0 / 2835;
        p = (p * z - 17.0 / 315) * z + 2.0 / 15;
        return x + x * z * (p * z - 1.0 / 3);
    }
    if (a > 20)
        return copysign(1, x);
    scaled s = exp_parts((dd){2 * a, 0});
    dd e = dd_sum_sorted(dd_scale(s.m.hi, s.k), dd_scale(s.m.lo, s.k));
    dd y = dd_divide(dd_add(e, (dd){-1, 0}), dd_add(e, (dd){1, 0}));
    return copysign(y.hi + y.lo, x);
}

/* log x, with a relative error below 2^-67; lo is below 2^-8 hi. */
static inline dd log_of(dd x)
{
    bool denormal = x.hi < DBL_MIN; /* has no x.lo */
    log_split s = log_begin(denormal ? x.hi * 0x1p54 : x.hi);
    dd r = s.r;
    if (x.lo != 0)
        r = dd_sum(r.hi, r.lo + dd_scale(x.lo, -s.k) * s.c);
    s.k -= denormal ? 54 : 0;

    /* Half of r^2 is square, which is exact, and square_low. */
    double z = r.hi, upper = dd_upper(z), square = 0.5 * upper * upper;
    double square_low = 0.5 * (z - upper) * (z + upper) + z * r.lo, z2 = z * z;
    double p = (1.0 / 7 - z * (1.0 / 8)) + z2 * (1.0 / 9 - z * (1.0 / 10));
    p = (1.0 / 3 - z * (1.0 / 4)) + z2 * ((1.0 / 5 - z * (1.0 / 6)) + z2 * p);

    dd whole = log_end(s); /* 0, or more than r */
    dd inner = dd_sum_sorted(z, -square), sum = dd_sum_sorted(whole.hi, inner.hi);
    double rest = (r.lo - square_low) + whole.lo + z * z2 * p;
    return (dd){sum.hi, sum.lo + (inner.lo + rest)};
}

/* Finite numbers above 0 have their logarithm; returns whether x is another, and its logarithm.
 */
static bool is_special(double x, double *y)
{
    *y = x == 0 ? -INFINITY : x < 0 ? NAN : x;
    return !(x > 0 && x < INFINITY);
}

double choir__log(double x)
{
    double y;
    if (is_special(x, &y))
        return y;
    dd log = log_of((dd){x, 0});
    return log.hi + log.lo;
}

double choir__log1p(double x)
{
    double y;
    if (fabs(x) < 0x1p-54)
        return x;
    if (is_special(1 + x, &y))
        return y;
    dd log = log_of(dd_sum(1, x));
    return log.hi + log.lo;
}

double choir__log10(double x)
{
    static const dd inverse = {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57}; /* 1 / ln 10 */
    double y;
    if (is_special(x, &y))
        return y;
    dd log = log_of((dd){x, 0});
    log = dd_multiply(dd_sum_sorted(log.hi, log.lo), inverse);
    return log.hi + log.lo;
}

/* --- pow: x^y = exp(y log x) --- */

static bool is_integer(double y)
{
    return y == rint(y); /* infinities are, too */
}

static bool is_odd(double y)
{
    return is_integer(y) && fabs(y) < 0x1p53 && fmod(y, 2) != 0;
}

/* x is 0, infinite or NaN, or y is infinite or NaN; neither x = 1 nor y = 0 comes here. */
static double special(double x, double y)
{
    if (isnan(x) || isnan(y))
        return isnan(x) ? x : y;
    if (isinf(y))
        return x == -1 ? 1 : (fabs(x) > 1) == (y > 0) ? INFINITY : 0;
    double size = (x == 0) == (y > 0) ? 0 : INFINITY;
    return is_odd(y) ? copysign(size, x) : size;
}

double choir__pow(double x, double y)
{
    if (x == 1 || y == 0)
        return 1;
    if (!isfinite(x) || !isfinite(y) || x == 0)
        return special(x, y);
    if (x < 0 && !is_integer(y))
        return NAN;
    double sign = x < 0 && is_odd(y) ? -1 : 1;
    dd log = log_of((dd){fabs(x), 0});
    log = dd_sum_sorted(log.hi, log.lo);
    double about = y * log.hi;
    if (!(fabs(about) < 746))
        return sign * (about > 0 ? INFINITY : 0);
    if (fabs(about) < 0x1p-60)
        return sign;
    return sign * round_scaled(exp_parts(dd_multiply(log, (dd){y, 0})));
}

/* --- erfc x = exp(-x^2) f(x) for x >= 0, where f falls slowly: a table has polynomials for it,
 * in intervals that are an eighth of a binade of x + 1 --- */

/* Returns f(x) for 0 <= x < 28. */
static dd slow_part(double x)
{
    int binade;
    int eighth = (int)(frexp(x + 1, &binade) * 16) - 8; /* in [8, 16) before */
    const erfc_entry *e = &choir__erfc_table[(binade - 1) * 8 + eighth];
    double d = x - e->centre, p = e->a[11];
    for (int i = 10; i > 0; i--)
        p = p * d + e->a[i];
    dd f = dd_sum_sorted(e->a[0], p * d);
    f.lo += e->rest;
    return f;
}

double choir__erfc(double x)
{
    double a = fabs(x);
    if (!(a < 28))
        return isnan(x) ? x : x < 0 ? 2 : 0;
    if (a < 0x1p-60)
        return 1;
    dd square = dd_product(a, a);
    scaled y = exp_parts((dd){-square.hi, -square.lo});
    y.m = dd_multiply(dd_sum_sorted(y.m.hi, y.m.lo), slow_part(a));
    if (x >= 0)
        return round_scaled(y);
    dd most = {dd_scale(y.m.hi, y.k), dd_scale(y.m.lo, y.k)}, two = dd_sum(2, -most.hi);
    return two.hi + (two.lo - most.lo);
}

/* The series near 0, where 1 - erfc x cancels: 2 / sqrt pi times the sum of (-1)^n x^(2n+1) /
 * (n! (2n+1)). */
double choir__erf(double x)
{
    static const double series[] = {1, -1.0 / 3, 1.0 / 10, -1.0 / 42, 1.0 / 216, -1.0 / 1320,
        1.0 / 9360, -1.0 / 75600, 1.0 / 685440, -1.0 / 6894720, 1.0 / 76204800,
        -1.0 / 918086400, 1.0 / 11975040000};
    if (!(fabs(x) < 0.5))
        return isnan(x) ? x : copysign(1 - choir__erfc(fabs(x)), x);
    double z = x * x, p = 0;
    for (int n = (int)(sizeof series / sizeof *series) - 1; n > 0; n--)
        p = p * z + series[n];
    return 0x1.20dd750429b6dp0 * (z == 0 ? x : x + x * (p * z)); /* -0 stays */
}
