/* Memory 16 bytes at a time, the widest access of a thread.
 *
 * A pack holds 16 bytes: 8 bf16, 4 f32, 2 f64. Kernels distribute packs to threads in the same
 * way whether or not packs can be moved whole; only the moves differ. If rows are not whole
 * packs or not aligned, a pack's elements are moved one by one, without those beyond a row's
 * end. So the order of sums, and their bits, do not depend on an operand's address.
 *
 * Packs are for rows that Choir lays out itself, which are whole packs except for odd widths:
 * norms, pools, gates. Where rows usually begin anywhere, or operands are one long run, slots
 * (vector.cuh) still use 16 bytes at a time. */
#ifndef CHOIR_PACK_CUH
#define CHOIR_PACK_CUH

#include "device/cuda/kit/kernel.cuh"

template <class T> struct alignas(16) pack {
    enum { N = 16 / sizeof(T) };
    T at[N];
};

/* Loads a pack from p, where `left` elements belong to the row; the others are 0. whole: all
 * belong to it, and p is aligned. */
template <class T> __device__ inline pack<T> load(const T *p, int64_t left, bool whole)
{
    if (whole)
        return *(const pack<T> *)p;
    pack<T> v;
    for (int i = 0; i < pack<T>::N; i++)
        v.at[i] = i < left ? p[i] : T(0.0f);
    return v;
}

template <class T>
__device__ inline void store(T *p, const pack<T> &v, int64_t left, bool whole)
{
    if (whole) {
        uint4 words;
        memcpy(&words, (const void *)&v, sizeof words);
        store_16(p, words);
        return;
    }
    for (int i = 0; i < pack<T>::N; i++)
        if (i < left)
            p[i] = v.at[i];
}

/* Like load, converted to wide<T> for arithmetic. An operand that is not given is
 * `otherwise`. */
template <class T>
__device__ inline void load_wide(
    wide<T> *v, const T *p, int64_t left, bool whole, wide<T> otherwise)
{
    pack<T> q;
    if (p)
        q = load(p, left, whole);
    for (int i = 0; i < pack<T>::N; i++)
        v[i] = p ? get(&q.at[i]) : otherwise;
}

template <class T>
__device__ inline void store_wide(T *p, const wide<T> *v, int64_t left, bool whole)
{
    pack<T> q;
    for (int i = 0; i < pack<T>::N; i++)
        put(&q.at[i], v[i]);
    store(p, q, left, whole);
}

/* As many elements of the 16-bit type H as a pack of T has, beside which they are. */
template <class T, class H> struct alignas(pack<T>::N * sizeof(H)) beside {
    H at[pack<T>::N];
};

template <class T, class H>
__device__ inline pack<T> load_beside(const H *p, int64_t left, bool whole)
{
    pack<T> v;
    beside<T, H> q;
    if (whole)
        q = *(const beside<T, H> *)p;
    for (int i = 0; i < pack<T>::N; i++)
        if (whole)
            put(&v.at[i], get(&q.at[i]));
        else
            put(&v.at[i], i < left ? get(p + i) : wide<T>(0));
    return v;
}

template <class T, class H>
__device__ inline void store_beside(H *p, const wide<T> *v, int64_t left, bool whole)
{
    beside<T, H> q;
    for (int i = 0; i < pack<T>::N; i++)
        put(&q.at[i], v[i]);
    if (whole)
        *(beside<T, H> *)p = q;
    for (int i = 0; i < pack<T>::N && !whole; i++)
        if (i < left)
            p[i] = q.at[i];
}

/* Calls f(t, h) with values of both types: h is t's unless f32 operands have 16-bit ones beside
 * them. */
template <class F> void choose_beside(choir_dtype dtype, choir_dtype half, bool mixed, F f)
{
    if (mixed && half == CHOIR_BF16)
        f(float(), bf16());
    else if (mixed)
        f(float(), f16());
    else
        choose(dtype, [&](auto t) { f(t, t); });
}

/* Loads values of a pack's columns: weights, statistics. Memory has them in wide<T>. */
template <class T>
__device__ inline void load_weights(
    wide<T> *v, const void *weights, int64_t c, int64_t left, bool whole, wide<T> otherwise)
{
    typedef wide<T> W;
    enum { EACH = pack<W>::N };
    const W *p = (const W *)weights + c;
    for (int e = 0; e < pack<T>::N; e += EACH)
        load_wide(v + e, weights ? p + e : NULL, left - e, whole, otherwise);
}

/* Rounds v to T. */
template <class T> __device__ inline wide<T> rounded(wide<T> v)
{
    T t;
    put(&t, v);
    return get(&t);
}

/* A kernel's arguments, and whether its rows are whole packs, each aligned at its start. */
template <class A> struct in_packs {
    A k;
    /* an int64_t, so that the struct has no padding, whose bytes might look like a pointer */
    int64_t whole;
};

/* a b, rounded: never part of a fused multiply-add. */
__device__ inline float product(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ inline double product(double a, double b)
{
    return __dmul_rn(a, b);
}

/* Returns the number of packs in a row of n elements. */
template <class T> __host__ __device__ inline int64_t packs_of(int64_t n)
{
    return (n + pack<T>::N - 1) / pack<T>::N;
}

/* True if all pointers (NULL is fine) are aligned to packs. */
template <class... P> bool aligned(P... p)
{
    return (((uintptr_t)p | ...) & 15) == 0;
}

/* Returns the number of blocks for n packs, one thread each. A GPU starts blocks as others end,
 * so at the end none waits for blocks that had more work. */
inline unsigned blocks_for(int64_t n)
{
    return (unsigned)((n + BLOCK - 1) / BLOCK);
}

/* Launches a kernel of pooling with a thread for each pack of `pixels` pixels. aligned: the
 * images begin at packs. */
template <class T>
void launch_pixels(void (*kernel)(in_packs<choir__k_pool>), const choir__k_pool &k,
    int64_t pixels, bool aligned)
{
    int64_t packs = pixels * packs_of<T>(k.s.c);
    if (packs > 0)
        launch(kernel, blocks_for(packs), BLOCK, 0,
            in_packs<choir__k_pool>{k, aligned && k.s.c % pack<T>::N == 0});
}

/* a / b of non-negative numbers: in 32 bits where that is enough, which is several times as
 * fast. */
__device__ inline int64_t divide(int64_t a, int64_t b)
{
    return (((uint64_t)a | (uint64_t)b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b)
                                                    : a / b;
}

#endif
