/* Random numbers that depend on a key and a place alone. The bits equal the CPU's.
 *
 * Uniform numbers and dropout's masks are exact arithmetic. The normal distribution uses the
 * polynomials of cpu/isa/vector_math.h and cpu/isa/random.c, operation by operation: this file
 * is compiled without contraction to fused multiply-add (cmake/plugins.cmake). A thread
 * computes one block of Philox: four numbers. */
#include "base/rng.h"
#include "device/cuda/kit/vector.cuh"

enum { DRAWN = 4 };

/* Loads four elements from p on, or the `left` ones that exist; `whole`: p is aligned for all
 * at once. */
template <class T>
__device__ inline void load_four(wide<T> (&v)[DRAWN], const T *p, int64_t left, bool whole)
{
    if (whole && left >= DRAWN) {
        several<T, DRAWN> s = *(const several<T, DRAWN> *)p;
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            v[j] = get(&s.e[j]);
    } else {
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            v[j] = j < left ? get(p + j) : 0;
    }
}

template <class T>
__device__ inline void store_four(T *p, const wide<T> (&v)[DRAWN], int64_t left, bool whole)
{
    if (whole && left >= DRAWN) {
        several<T, DRAWN> s;
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            put(&s.e[j], v[j]);
        *(several<T, DRAWN> *)p = s;
    } else {
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            if (j < left)
                put(p + j, v[j]);
    }
}

/* True if four elements from p on can be moved at once. */
static bool fours_lie_well(choir_dtype dtype, const void *p)
{
    size_t bytes = DRAWN * choir_dtype_size(dtype);
    return (uintptr_t)p % (bytes < 16 ? bytes : 16) == 0;
}

/* --- normal numbers --- */

/* log x of a normal number x > 0 (for the polynomial's source see cpu/isa/vector_math.h). */
__device__ inline float log_of_unit(float x)
{
    uint32_t bits = __float_as_uint(x);
    float e = (float)((int32_t)(bits >> 23 & 0xff) - 126);
    float m = __uint_as_float((bits & 0x7fffff) | 0x3f000000);
    bool low = m < 0.707106781186547524f;
    e -= low ? 1.0f : 0.0f;
    float r = (low ? m + m : m) - 1.0f, z = r * r;
    float p = r * 7.0376836292e-2f + -1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r + -1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r + -1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r + -2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    float y = p * r * z + e * -2.12194440e-4f - z * 0.5f;
    return r + y + e * 0.693359375f;
}

/* cos(2 pi u), |u| <= 1 (cpu/isa/random.c). */
__device__ inline float cos_turn(float u)
{
    float a = fabsf(u - rintf(u));
    bool far = a > 0.25f;
    float b = far ? 0.5f - a : a, x = (0.25f - b) * 6.28318530717958648f, z = x * x;
    float p = z * -2.50521083854e-8f + 2.75573192240e-6f;
    p = p * z + -1.98412698413e-4f;
    p = p * z + 8.33333333333e-3f;
    p = p * z + -1.66666666667e-1f;
    float y = p * z * x + x;
    return far ? -y : y;
}

/* Computes the pair of numbers from words (first, second). */
__device__ inline void normal_pair(uint32_t first, uint32_t second, float *even, float *odd)
{
    float r = sqrtf(log_of_unit(1.0f - choir__unit(first)) * -2.0f), u = choir__unit(second);
    *even = r * cos_turn(u + 0.0f * -0.25f);
    *odd = r * cos_turn(u + 1.0f * -0.25f);
}

__device__ inline void normal_pair(uint32_t first, uint32_t second, double *even, double *odd)
{
    double r = sqrt(-2 * log(1 - (double)choir__unit(first)));
    double angle = 2 * 3.14159265358979323846 * (double)choir__unit(second);
    *even = r * cos(angle);
    *odd = r * sin(angle);
}

struct drawing {
    choir__k_random k;
    bool whole;
};

template <class T> __global__ void draw(drawing d)
{
    typedef wide<T> V;
    const choir__k_random &k = d.k;
    V shift = V(k.a), scale = V(k.normal ? k.b : k.b - k.a);
    for (int64_t i = first_thread(); i * DRAWN < k.n; i += all_threads()) {
        uint32_t word[DRAWN];
        V v[DRAWN];
        choir__philox(k.key, 0, k.first / DRAWN + (uint64_t)i, word);
        if (k.normal) {
            normal_pair(word[0], word[1], &v[0], &v[1]);
            normal_pair(word[2], word[3], &v[2], &v[3]);
        }
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            v[j] = shift + scale * (k.normal ? v[j] : V(choir__unit(word[j])));
        store_four<T>((T *)k.y + i * DRAWN, v, k.n - i * DRAWN, d.whole);
    }
}

extern "C" void choir__cuda_random(const choir__k_random *k)
{
    drawing d = {*k, fours_lie_well(k->dtype, k->y)};
    if (k->n > 0)
        choose(k->dtype, [&](auto t) {
            launch(draw<decltype(t)>, grid_for((k->n + DRAWN - 1) / DRAWN), BLOCK, 0, d);
        });
}

/* --- dropout --- */

struct dropping {
    choir__k_dropout k;
    bool whole;
};

template <class T> __global__ void dropout(dropping d)
{
    typedef wide<T> V;
    const choir__k_dropout &k = d.k;
    uint64_t step = *k.step;
    V scale = V(1) / (V(1) - V(k.p));
    for (int64_t i = first_thread(); i * DRAWN < k.n; i += all_threads()) {
        uint32_t word[DRAWN];
        V v[DRAWN];
        int64_t left = k.n - i * DRAWN;
        load_four<T>(v, (const T *)k.x + i * DRAWN, left, d.whole);
        choir__philox(k.key, step, (uint64_t)(k.first / DRAWN + i), word);
#pragma unroll
        for (int j = 0; j < DRAWN; j++)
            v[j] = choir__unit(word[j]) >= k.p ? v[j] * scale : V(0);
        store_four<T>((T *)k.y + i * DRAWN, v, left, d.whole);
    }
}

/* Drops elements at places in a larger tensor: a thread draws a block per element. */
template <class T> __global__ void dropout_part(choir__k_dropout k)
{
    typedef wide<T> V;
    V scale = V(1) / (V(1) - V(k.p));
    for (int64_t i = first_thread(); i < k.n; i += all_threads()) {
        uint32_t word[DRAWN];
        int64_t at = choir__dropout_place(&k, i);
        choir__philox(k.key, *k.step, (uint64_t)at / DRAWN, word);
        V x = get((const T *)k.x + i);
        put((T *)k.y + i, choir__unit(word[at % DRAWN]) >= k.p ? x * scale : V(0));
    }
}

extern "C" void choir__cuda_dropout(const choir__k_dropout *k)
{
    if (k->cols && k->n > 0) {
        choose(k->dtype, [&](auto t) {
            launch(dropout_part<decltype(t)>, grid_for(k->n), BLOCK, 0, *k);
        });
        return;
    }
    dropping d = {*k, fours_lie_well(k->dtype, k->x) && fours_lie_well(k->dtype, k->y)};
    if (k->n > 0)
        choose(k->dtype, [&](auto t) {
            launch(dropout<decltype(t)>, grid_for((k->n + DRAWN - 1) / DRAWN), BLOCK, 0, d);
        });
}
