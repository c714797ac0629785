/* A million results of base/math/functions.h as one number, for unit.math and for a program of
 * each compiler (unit/base/math_compilers.sh). No argument comes from a function that might
 * differ. */
#ifndef CHOIR_TESTS_MATH_HASH_H
#define CHOIR_TESTS_MATH_HASH_H

#include <math.h>
#include "base/hash.h"
#include "base/math/functions.h"
#include "base/rng.h"

/* Only a change of the formulas may change it. */
#define HASH_OF_MATH UINT64_C(0x7e3ea896d60f98c3)

static uint64_t drawn;

static uint64_t draw(void)
{
    return choir__mix(1, drawn++);
}

static double between(double low, double high)
{
    return low + (high - low) * ((double)(draw() >> 11) * 0x1p-53);
}

/* Each exponent and sign is as likely as any other. */
static double any_double(void)
{
    uint64_t bits = draw();
    double x;
    memcpy(&x, &bits, sizeof x);
    return isnan(x) ? 0 : x;
}

static double near_0(void)
{
    double x = between(-2, 2);
    return ldexp(x, -(int)(draw() % 64));
}

/* Functions of one argument. */
static double one_of(int function, double x)
{
    switch (function) {
    case 0: return choir__exp(x);
    case 1: return choir__log(x);
    case 2: return choir__log1p(x);
    case 3: return choir__log10(x);
    case 4: return choir__sin(x);
    case 5: return choir__cos(x);
    case 6: return choir__tan(x);
    case 7: return choir__atan(x);
    case 8: return choir__tanh(x);
    case 9: return choir__erfc(x);
    case 10: return choir__expm1(x);
    default: return choir__erf(x);
    }
}

static uint64_t extend(uint64_t hash, double y)
{
    uint64_t bits = 1; /* for NaN, whose sign means nothing */
    if (!isnan(y))
        memcpy(&bits, &y, sizeof bits);
    return choir__hash_step(hash, bits);
}

static uint64_t hash_of_math(void)
{
    uint64_t hash = CHOIR__HASH_SEED;
    drawn = 0;
    for (int i = 0; i < 72000; i++) {
        double x = i % 3 == 0 ? any_double() : i % 3 == 1 ? near_0() : between(-30, 30);
        for (int f = 0; f < 12; f++)
            hash = extend(hash, one_of(f, x));
        double y = near_0(), u = 1 - between(0, 1), turn = between(0, 1), a, b;
        hash = extend(hash, choir__pow(fabs(x), y));
        hash = extend(hash, (double)choir__powf((float)u, (float)x));
        choir__normal_pair(u, turn, &a, &b);
        hash = extend(extend(hash, a), b);
    }
    return hash;
}

#endif
