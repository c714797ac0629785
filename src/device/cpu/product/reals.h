/* Vectors of the type that a file of products computes in: REAL, float or double, defined
 * before this header. A vector is as wide as isa.h's.
 */
#ifndef CHOIR_PRODUCT_REALS_H
#define CHOIR_PRODUCT_REALS_H

#include "device/cpu/product/fma.h"
typedef REAL real;
#define IS_DOUBLE (sizeof(real) == sizeof(double))

enum { RW = 4 * W / (int)sizeof(real) }; /* reals in a vector */

typedef real reals __attribute__((vector_size(4 * W)));

INLINE reals r_load(const real *p)
{
    reals x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void r_store(real *p, reals x)
{
    memcpy(p, &x, sizeof x);
}

INLINE reals r_set(real x)
{
    return x - (reals){0};
}

/* x y + sum in f64, with one rounding. */
#if defined(__AVX512F__)
#define FMA_F64(x, y, sum) (reals) _mm512_fmadd_pd((__m512d)(x), (__m512d)(y), (__m512d)(sum))
#elif defined(__AVX2__)
#define FMA_F64(x, y, sum) (reals) _mm256_fmadd_pd((__m256d)(x), (__m256d)(y), (__m256d)(sum))
#elif defined(__aarch64__)
#define FMA_F64(x, y, sum)                                                                     \
    (reals) vfmaq_f64((float64x2_t)(sum), (float64x2_t)(x), (float64x2_t)(y))
#else
#define FMA_F64(x, y, sum) fma_in_turn(x, y, sum)

INLINE reals fma_in_turn(reals x, reals y, reals sum)
{
    for (int i = 0; i < RW; i++)
        sum[i] = (real)fma((double)x[i], (double)y[i], (double)sum[i]);
    return sum;
}
#endif

INLINE reals r_fma(reals x, reals y, reals sum)
{
    return IS_DOUBLE ? FMA_F64(x, y, sum) : (reals)v_fma((vec)x, (vec)y, (vec)sum);
}

#endif
