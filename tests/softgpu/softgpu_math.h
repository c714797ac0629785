/* Functions of a kernel's single thread beyond <math.h>: atomics on integers, bits,
 * conversions, and the fast functions, which are exact here. */
#ifndef SOFTGPU_MATH_H
#define SOFTGPU_MATH_H

/* --- atomics: the host may read the memory at the same time --- */

#define SOFTGPU_ATOMICS(T)                                                                     \
    inline T atomicAdd(T *p, T v)                                                              \
    {                                                                                          \
        return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);                                     \
    }                                                                                          \
    inline T atomicExch(T *p, T v)                                                             \
    {                                                                                          \
        return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);                                    \
    }                                                                                          \
    inline T atomicCAS(T *p, T expected, T v)                                                  \
    {                                                                                          \
        (void)__atomic_compare_exchange_n(                                                     \
            p, &expected, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                       \
        return expected;                                                                       \
    }                                                                                          \
    inline T atomicMax(T *p, T v)                                                              \
    {                                                                                          \
        T old = *p;                                                                            \
        *p = old < v ? v : old;                                                                \
        return old;                                                                            \
    }                                                                                          \
    inline T atomicMin(T *p, T v)                                                              \
    {                                                                                          \
        T old = *p;                                                                            \
        *p = v < old ? v : old;                                                                \
        return old;                                                                            \
    }                                                                                          \
    inline T atomicOr(T *p, T v)                                                               \
    {                                                                                          \
        return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);                                      \
    }                                                                                          \
    inline T atomicAnd(T *p, T v)                                                              \
    {                                                                                          \
        return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);                                     \
    }
SOFTGPU_ATOMICS(int)
SOFTGPU_ATOMICS(unsigned)
SOFTGPU_ATOMICS(unsigned long long)
#undef SOFTGPU_ATOMICS

inline unsigned atomicInc(unsigned *p, unsigned limit)
{
    unsigned old = *p;
    *p = old >= limit ? 0 : old + 1;
    return old;
}

/* --- bits --- */

template <class T, class F> inline T softgpu_bits(F from)
{
    T to;
    static_assert(sizeof to == sizeof from, "bits of another size");
    memcpy(&to, &from, sizeof to);
    return to;
}

inline unsigned __float_as_uint(float x)
{
    return softgpu_bits<unsigned>(x);
}
inline int __float_as_int(float x)
{
    return softgpu_bits<int>(x);
}
inline float __uint_as_float(unsigned x)
{
    return softgpu_bits<float>(x);
}
inline float __int_as_float(int x)
{
    return softgpu_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return softgpu_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return softgpu_bits<double>(x);
}

inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned which)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(both >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}

/* --- loads, which need no cache here --- */

template <class T> inline T __ldg(const T *p)
{
    return *p;
}
template <class T> inline T __ldcs(const T *p)
{
    return *p;
}
template <class T> inline T __ldcg(const T *p)
{
    return *p;
}
template <class T> inline void __stcs(T *p, T v)
{
    *p = v;
}
template <class T> inline void __stcg(T *p, T v)
{
    *p = v;
}

/* --- the smaller and the larger --- */

#define SOFTGPU_LEAST(T)                                                                       \
    inline T min(T a, T b)                                                                     \
    {                                                                                          \
        return b < a ? b : a;                                                                  \
    }                                                                                          \
    inline T max(T a, T b)                                                                     \
    {                                                                                          \
        return a < b ? b : a;                                                                  \
    }
SOFTGPU_LEAST(int)
SOFTGPU_LEAST(unsigned)
SOFTGPU_LEAST(long)
SOFTGPU_LEAST(unsigned long)
SOFTGPU_LEAST(long long)
SOFTGPU_LEAST(unsigned long long)
#undef SOFTGPU_LEAST
inline float min(float a, float b)
{
    return fminf(a, b);
}
inline float max(float a, float b)
{
    return fmaxf(a, b);
}
inline double min(double a, double b)
{
    return fmin(a, b);
}
inline double max(double a, double b)
{
    return fmax(a, b);
}

/* --- functions --- */

inline float rsqrtf(float x)
{
    return 1 / sqrtf(x);
}
inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}
inline float __expf(float x)
{
    return expf(x);
}
inline float __exp2f(float x)
{
    return exp2f(x);
}
inline float __logf(float x)
{
    return logf(x);
}
inline float __log2f(float x)
{
    return log2f(x);
}
inline float __sinf(float x)
{
    return sinf(x);
}
inline float __cosf(float x)
{
    return cosf(x);
}
inline float __powf(float x, float y)
{
    return powf(x, y);
}
inline float __tanhf(float x)
{
    return tanhf(x);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __frcp_rn(float x)
{
    return 1 / x;
}
inline float __frsqrt_rn(float x)
{
    return 1 / sqrtf(x);
}
inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
inline float __fadd_rn(float a, float b)
{
    return a + b;
}
inline float __fsub_rn(float a, float b)
{
    return a - b;
}
inline float __fmul_rn(float a, float b)
{
    return a * b;
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
inline double __dadd_rn(double a, double b)
{
    return a + b;
}
inline double __dmul_rn(double a, double b)
{
    return a * b;
}
inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
inline double __dsqrt_rn(double a)
{
    return sqrt(a);
}
inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
inline float __saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1) : 0;
}
inline void sincospif(float x, float *s, float *c)
{
    *s = (float)sin(M_PI * (double)x);
    *c = (float)cos(M_PI * (double)x);
}
inline float cospif(float x)
{
    return (float)cos(M_PI * (double)x);
}
inline float sinpif(float x)
{
    return (float)sin(M_PI * (double)x);
}
inline void __sincosf(float x, float *s, float *c)
{
    sincosf(x, s, c);
}

inline int __float2int_rn(float x)
{
    return (int)nearbyintf(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline int __float2int_rd(float x)
{
    return (int)floorf(x);
}
inline unsigned __float2uint_rn(float x)
{
    return (unsigned)nearbyintf(x);
}
inline unsigned __float2uint_rz(float x)
{
    return (unsigned)x;
}
inline float __int2float_rn(int x)
{
    return (float)x;
}
inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
inline float __double2float_rn(double x)
{
    return (float)x;
}

#endif
