/* exp, log, tanh and the normal distribution on vectors. The polynomials are our own, so that
 * the bits depend on no library and no instruction set. Errors are within about 2 ulp (v_phi
 * 8); inf, NaN and denormals give the results of C. Polynomials are summed in pairs (Estrin),
 * since short dependency chains keep the units busy. Sources: Cephes (Moshier) for exp, log,
 * tanh; Numerical Recipes (2nd ed., 6.2) for erfc. */
#ifndef CHOIR_ISA_VECTOR_MATH_H
#define CHOIR_ISA_VECTOR_MATH_H

#include "base/math/functions.h"
#include "device/cpu/isa/isa.h"

/* exp(x + low) for -104 <= x <= 89, low within an ulp of x: x = n ln 2 + r, |r| <= ln 2 / 2,
 * and exp x = 2^n (1 + r + r^2 P(r)). */
INLINE vec v_exp_sum(vec x, vec low)
{
    vec n = v_round(x * 1.44269504088896341f);
    vec r = x - n * 0.693359375f - n * -2.12194440e-4f + low;
    vec s = r * r;
    vec p = (r * 1.9875691500e-4f + 1.3981999507e-3f) * s +
            (r * 8.3334519073e-3f + 4.1665795894e-2f);
    p = p * s + (r * 1.6666665459e-1f + 5.0000001201e-1f);
    return v_ldexp(p * s + r + 1.0f, n);
}

/* exp for -104 <= x <= 89, or NaN. */
INLINE vec v_exp_within(vec x)
{
    return v_exp_sum(x, -(vec){0}); /* r + -0 is r: the compiler drops it */
}

/* exp for x <= 89. */
INLINE vec v_exp_below(vec x)
{
    return v_exp_within(v_max(v_set(-104.0f), x)); /* 0 beyond */
}

INLINE vec v_exp(vec x)
{
    return v_exp_below(v_min(v_set(89.0f), x)); /* inf beyond */
}

/* x = 2^e m, m in [sqrt 1/2, sqrt 2); log x = e ln 2 + log m. */
INLINE vec v_log(vec x)
{
    mask tiny = v_lt(x, v_set(0x1p-126f));
    ivec bits = (ivec)v_sel(tiny, x * 0x1p23f, x);
    vec e = __builtin_convertvector((bits >> 23 & 0xff) - 126, vec);
    e -= v_sel(tiny, v_set(23.0f), v_set(0.0f));
    vec m = (vec)((bits & 0x7fffff) | 0x3f000000);
    mask low = v_lt(m, v_set(0.707106781186547524f));
    e -= v_sel(low, v_set(1.0f), v_set(0.0f));
    vec r = v_sel(low, m + m, m) - 1.0f, z = r * r;

    vec p = r * 7.0376836292e-2f + -1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r + -1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r + -1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r + -2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    vec y = p * r * z + e * -2.12194440e-4f - z * 0.5f;
    y = r + y + e * 0.693359375f;

    y = v_sel(v_lt(x, v_set(INFINITY)), y, x); /* inf, NaN */
    y = v_sel(v_lt(x, v_set(0.0f)), v_set(NAN), y);
    return v_sel(v_eq(x, v_set(0.0f)), v_set(-INFINITY), y);
}

/* tanh. Near 0, where 1 - 2 / (exp 2x + 1) would cancel, it uses a polynomial. */
INLINE vec v_tanh(vec x)
{
    vec a = v_abs(x), z = x * x;
    vec p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z + -5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z + -3.33332819422e-1f;
    vec near = p * z * x + x;
    vec far = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    return v_sel(v_lt(a, v_set(0.625f)), near, v_sign(far, x));
}

/* log(1 + x) = log(u) x / (u - 1) with u = 1 + x: the quotient makes up for u's rounding. */
INLINE vec v_log_1_plus(vec x)
{
    vec u = 1.0f + x, y = v_log(u) * (x / (u - 1.0f));
    y = v_sel(v_eq(u, v_set(1.0f)), x, y);
    return v_sel(v_lt(u, v_set(INFINITY)), y, u); /* inf, NaN */
}

/* exp(x) - 1. Near 0, where it would cancel, it is exp's polynomial without its 1. */
INLINE vec v_expm1(vec x)
{
    vec s = x * x, a = v_abs(x);
    vec p = (x * 1.9875691500e-4f + 1.3981999507e-3f) * s +
            (x * 8.3334519073e-3f + 4.1665795894e-2f);
    p = p * s + (x * 1.6666665459e-1f + 5.0000001201e-1f);
    vec near = v_sel(v_lt(a, v_set(1e-9f)), x, p * s + x); /* -0 stays */
    return v_sel(v_lt(a, v_set(0.34f)), near, v_exp(x) - 1.0f);
}

INLINE vec v_sigmoid(vec x)
{
    return 1.0f / (1.0f + v_exp(-x));
}

/* x sigmoid(x). Far below 0 it is almost 0, and never -inf * 0. */
INLINE vec v_silu(vec x)
{
    x = v_max(v_set(-88.0f), x);
    return x / (1.0f + v_exp_below(-x));
}

/* The slope of v_silu, s + x s (1 - s) with s = 1 / (1 + e), e = exp(-x), so 1 - s = e s does
 * not cancel. Beyond +-88 nothing changes. */
INLINE vec v_silu_slope(vec x)
{
    vec t = v_min(v_set(88.0f), v_max(v_set(-88.0f), x));
    vec e = v_exp_within(-t), s = 1.0f / (1.0f + e);
    return s + t * s * (e * s);
}

/* The normal distribution, erfc(-x / sqrt 2) / 2. With z = |x| / sqrt 2 and t = 2 / (2 + z),
 * erfc z = t exp(-z^2 + P(t)) with a relative error of 1.2e-7. -z^2 = -x^2/2 is split into
 * -h^2/2, which is exact since h is the upper half of x's bits, and the rest, so that the left
 * tail keeps its digits. */
INLINE vec v_phi(vec x)
{
    vec a = v_min(v_set(14.0f), v_abs(x)), h = (vec)((ivec)a & ~0xfff);
    vec t = 2.0f / (a * 0.707106781186547524f + 2.0f);
    vec u = t * t, w = u * u;
    vec p = (t * 0.17087277f + -0.82215223f) * w;
    p += (t * 1.48851587f + -1.13520398f) * u + (t * 0.27886807f + -0.18628806f);
    p = p * w + ((t * 0.09678418f + 0.37409196f) * u + (t * 1.00002368f + -1.26551223f));
    vec whole = h * h * -0.5f, rest = p - (a - h) * (a + h) * 0.5f;
    vec sum = whole + rest, part = sum - whole; /* the rounding error of the sum (Knuth) */
    vec lost = (whole - (sum - part)) + (rest - part);
    vec tail = 0.5f * t * v_exp_sum(sum, lost);
    return v_sel(v_lt(x, v_set(0.0f)), tail, 1.0f - tail);
}

/* erf x is 1 - 2 v_phi(-x sqrt 2), and its series near 0. */
INLINE vec v_erf(vec x)
{
    vec z = x * x;
    vec p = z * 1.2055332981789663e-4f + -8.5483270234508534e-4f;
    p = p * z + 5.2239776254421883e-3f;
    p = p * z + -2.6866170645131252e-2f;
    p = p * z + 1.1283791670955126e-1f;
    p = p * z + -3.7612638903183752e-1f;
    p = p * z + 1.1283791670955126f;
    vec far = 1.0f - 2.0f * v_phi(v_abs(x) * -1.4142135623730950f);
    return v_sel(v_lt(v_abs(x), v_set(0.5f)), p * x, v_sign(far, x));
}

/* sin(x + turn pi/2) for |x| < 8192: x = n pi/2 + r with |r| <= pi/4, where pi/2 is a sum of
 * three floats; the first two have so few bits that n times each is exact. */
INLINE vec v_sin_within(vec x, int turn)
{
    vec n = v_round(x * 0.636619772367581343f);
    vec r = x - n * 1.5703125f - n * 4.83751296997070312e-4f - n * 7.54978995489188e-8f;
    ivec quadrant = __builtin_convertvector(n, ivec) + turn;
    vec z = r * r;
    vec s = ((z * -1.9515295891e-4f + 8.3321608736e-3f) * z + -1.6666654611e-1f) * z * r + r;
    vec c = ((z * 2.443315711809948e-5f + -1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
                z * z -
            0.5f * z + 1.0f;
    vec odd = __builtin_convertvector(quadrant & 1, vec);
    vec y = v_sel(v_gt(odd, v_set(0.5f)), c, s);
    return (vec)((ivec)y ^ (quadrant & 2) << 30);
}

/* Other numbers are rare: the function in f64, rounded. */
INLINE vec v_sin_turned(vec x, int turn)
{
    mask near = v_lt(v_abs(x), v_set(8192.0f));
    vec y = v_sin_within(v_sel(near, x, v_set(0.0f)), turn);
    vec far = v_sel(near, v_set(0.0f), v_set(1.0f));
    if (v_any(v_gt(far, v_set(0.5f))))
        for (int j = 0; j < W; j++)
            if (far[j] > 0.5f)
                y[j] = (float)(turn ? choir__cos((double)x[j]) : choir__sin((double)x[j]));
    return y;
}

INLINE vec v_sin(vec x)
{
    return v_sel(v_eq(x, v_set(0.0f)), x, v_sin_turned(x, 0)); /* -0 stays */
}

INLINE vec v_cos(vec x)
{
    return v_sin_turned(x, 1);
}

#endif
