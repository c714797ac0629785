/* Slots: runs of elements, 16 bytes at a time.
 *
 * A run of elements is cut at addresses that are multiples of 16 bytes, into *slots* of N
 * elements; the first and the last slot may be partial. A thread moves a whole slot in one
 * access and a partial one element by element, so a run may begin and end anywhere. `lead` is
 * the number of elements that the first slot lacks. If operands differ in their offset from 16
 * bytes, slots have one element.
 *
 * That is for element-wise results. A sum's order must not depend on the address of its terms,
 * so sums cut a row from its own beginning, and load_row combines a slot from the two 16-byte
 * words that contain it.
 *
 * That costs arithmetic. For kernels whose rows are aligned except for odd widths, and which
 * need their registers, packs (pack.cuh) are simpler: whole, or one by one. */
#ifndef CHOIR_VECTOR_CUH
#define CHOIR_VECTOR_CUH

#include "device/cuda/kit/kernel.cuh"

/* The parameters of a kernel: memory of T's, slots of N, arithmetic in V's. */
template <class T_, int N_> struct access {
    typedef T_ T;
    typedef wide<T_> V;
    static const int N = N_;
};

template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) several {
    T e[N];
};

/* Returns the common lead of runs of elements of `size` bytes at these addresses, or -1 if they
 * differ. NULL addresses are ignored. */
inline int lead_of(size_t size, const void *a, const void *b = NULL, const void *c = NULL,
    const void *d = NULL, const void *e = NULL)
{
    const void *p[] = {a, b, c, d, e};
    int64_t off = -1;
    for (int i = 0; i < 5; i++) {
        int64_t own = (int64_t)((uintptr_t)p[i] % 16);
        if (p[i] && off >= 0 && own != off)
            return -1;
        off = p[i] ? own : off;
    }
    return off <= 0 ? 0 : off % (int64_t)size == 0 ? (int)(off / (int64_t)size) : -1;
}

/* Calls f with the access for a dtype and a lead. */
template <class F> void choose_access(choir_dtype dtype, int lead, F f)
{
    choose(dtype, [&](auto t) {
        if (lead >= 0)
            f(access<decltype(t), 16 / sizeof(t)>());
        else
            f(access<decltype(t), 1>());
    });
}

/* Loads a whole slot; x is aligned for it. */
template <class A>
__device__ inline void load_slot(typename A::V (&v)[A::N], const typename A::T *x)
{
    if (A::N == 1) {
        v[0] = get(x);
        return;
    }
    several<typename A::T, A::N> s;
    uint4 words = load_16(x);
    memcpy((void *)&s, &words, sizeof s);
#pragma unroll
    for (int j = 0; j < A::N; j++)
        v[j] = get(&s.e[j]);
}

/* Loads elements c ... c + N - 1 of the n at x, one by one; `other` replaces missing ones. */
template <class A>
__device__ inline void load_each(typename A::V (&v)[A::N], const typename A::T *x, int64_t c,
    int64_t n, typename A::V other)
{
#pragma unroll
    for (int j = 0; j < A::N; j++)
        v[j] = c + j >= 0 && c + j < n ? get(x + c + j) : other;
}

/* Like load_each, with one access if all elements are there; p + c is aligned for that. */
template <class A>
__device__ inline void load(
    typename A::V (&v)[A::N], const void *p, int64_t c, int64_t n, typename A::V other = 0)
{
    const typename A::T *x = (const typename A::T *)p;
    if (c >= 0 && c + A::N <= n)
        load_slot<A>(v, x + c);
    else
        load_each<A>(v, x, c, n, other);
}

template <class A>
__device__ inline void store(void *p, int64_t c, int64_t n, const typename A::V (&v)[A::N])
{
    typedef typename A::T T;
    T *y = (T *)p;
    if (A::N > 1 && c >= 0 && c + A::N <= n) {
        several<T, A::N> s;
        uint4 words;
#pragma unroll
        for (int j = 0; j < A::N; j++)
            put(&s.e[j], v[j]);
        memcpy(&words, (void *)&s, sizeof words);
        store_16(y + c, words);
    } else {
#pragma unroll
        for (int j = 0; j < A::N; j++)
            if (c + j >= 0 && c + j < n)
                put(y + c + j, v[j]);
    }
}

/* Returns the 16 bytes that begin `off` bytes after p, which is a multiple of 16. */
__device__ inline several<unsigned, 4> bytes_behind(const void *p, unsigned off)
{
    const uint4 low = load_16(p), high = load_16((const char *)p + 16);
    const unsigned w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const unsigned which = 0x3210 + off % 4 * 0x1111;
    several<unsigned, 4> out;
#define FROM_WORD(q)                                                                           \
    case q:                                                                                    \
        _Pragma("unroll") for (int i = 0; i < 4; i++) out.e[i] =                               \
            __byte_perm(w[q + i], w[q + i + 1], which);                                        \
        break
    switch (off / 4) {
        FROM_WORD(0);
        FROM_WORD(1);
        FROM_WORD(2);
    default: FROM_WORD(3);
    }
#undef FROM_WORD
    return out;
}

/* Like load, for a row whose n elements begin anywhere; c >= 0. */
template <class A>
__device__ inline void load_row(
    typename A::V (&v)[A::N], const void *p, int64_t c, int64_t n, typename A::V other = 0)
{
    typedef typename A::T T;
    const T *x = (const T *)p;
    unsigned off = (unsigned)((uintptr_t)(x + c) % (A::N * sizeof(T)));
    int64_t first = c - (int64_t)(off / sizeof(T)); /* index of the two words' first element */
    if (off == 0 && c + A::N <= n) {
        load_slot<A>(v, x + c);
    } else if (off != 0 && first >= 0 && first + 2 * A::N <= n) {
        several<unsigned, 4> words = bytes_behind(x + first, off);
        several<T, A::N> s;
        memcpy((void *)&s, &words, sizeof s);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            v[j] = get(&s.e[j]);
    } else {
        load_each<A>(v, x, c, n, other);
    }
}

/* --- one long run --- */

/* A kernel's arguments and its run's lead; k.n elements. */
template <class K> struct flat {
    K k;
    int lead;
};

template <class A, class K> __device__ inline int64_t slots_of(const flat<K> &f)
{
    return (f.k.n + f.lead + A::N - 1) / A::N;
}

template <class A, class K> void launch_flat(void (*kernel)(flat<K>), const K &k, int lead)
{
    flat<K> f = {k, lead > 0 ? lead : 0};
    if (k.n > 0)
        launch(kernel, grid_for((k.n + f.lead + A::N - 1) / A::N), BLOCK, 0, f);
}

/* --- rows: a warp takes one, or a block if they are long --- */

enum { SHORT_ROW = 1024, LONG_ROW = 16384 };

/* Returns the lead of a row; rows are `step` apart, and row 0 has the lead `lead`. */
template <class A> __device__ inline int64_t row_lead(int lead, int64_t row, int64_t step)
{
    return (lead + row * step) % A::N;
}

/* threads.x threads share a row, threads.y rows are in a block. */
inline dim3 row_threads(int64_t cols)
{
    return cols <= SHORT_ROW ? dim3(WARP, 8) : cols <= LONG_ROW ? dim3(256, 1) : dim3(512, 1);
}

inline unsigned row_blocks(int64_t rows, dim3 threads)
{
    return (unsigned)((rows + threads.y - 1) / threads.y);
}

/* Returns the thread's row. A warp's threads all have the same row, and leave together if it
 * does not exist. */
__device__ inline int64_t row_here()
{
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}

/* Sums over all threads of a row, and orders their reads before it and their writes after it, so
 * that a kernel may write a row in place. block_sum has barriers; shuffles order no memory. */
template <class V> __device__ inline V row_sum(V v)
{
    if (blockDim.x != WARP)
        return block_sum(v);
    __syncwarp();
    return warp_sum(v);
}

/* Like row_sum, the largest. */
template <class V> __device__ inline V row_max(V v)
{
    if (blockDim.x != WARP)
        return block_max(v);
    __syncwarp();
    return warp_max(v);
}

/* The access for sums along rows: slots of 16 bytes, cut from a row's beginning. */
template <class T> using row_access = access<T, 16 / sizeof(T)>;

/* Visits the thread's slots of a row: `at` is a slot's first element. */
#define EACH_SLOT(A, at, cols, lead)                                                           \
    for (int64_t at = (int64_t)threadIdx.x * A::N - (lead); at < (cols);                       \
         at += (int64_t)blockDim.x * A::N)

/* --- exp and quotients: fast units for 16-bit memory, whose rounding hides their error --- */

template <class T> __device__ inline wide<T> exp_for(wide<T> x)
{
    return exp(x);
}

template <class T> __device__ inline wide<T> ratio_for(wide<T> a, wide<T> b)
{
    return a / b;
}

template <> __device__ inline float exp_for<bf16>(float x)
{
    return __expf(x);
}
template <> __device__ inline float exp_for<f16>(float x)
{
    return __expf(x);
}
template <> __device__ inline float ratio_for<bf16>(float a, float b)
{
    return __fdividef(a, b);
}
template <> __device__ inline float ratio_for<f16>(float a, float b)
{
    return __fdividef(a, b);
}

/* A running log sum exp: the largest so far, and the sum of exp(x - largest). */
template <class V> struct exp_sum {
    V top, sum;
};

template <class V> __device__ inline exp_sum<V> exp_sum_none()
{
    return {V(-INFINITY), V(0)};
}

/* The largest ignores NaN, which stays in the sum; infinity makes the sum NaN. */
template <class A>
__device__ inline void exp_sum_add(exp_sum<typename A::V> &s, const typename A::V (&v)[A::N])
{
    typedef typename A::V V;
    V top = s.top;
#pragma unroll
    for (int j = 0; j < A::N; j++)
        top = v[j] > top ? v[j] : top;
    V from = top == V(-INFINITY) ? V(0) : top; /* only -inf so far: exp(-inf - 0) is 0 */
    V sum = s.sum * exp_for<typename A::T>(s.top - from);
#pragma unroll
    for (int j = 0; j < A::N; j++)
        sum += exp_for<typename A::T>(v[j] - from);
    s.top = top;
    s.sum = sum;
}

/* Combines the sums of all threads of the row. If the whole row is -inf, the sum is NaN. */
template <class T> __device__ inline exp_sum<wide<T>> exp_sum_row(exp_sum<wide<T>> s)
{
    typedef wide<T> V;
    V top = row_max(s.top);
    V from = top == V(-INFINITY) ? V(0) : top;
    V sum = row_sum(s.sum * exp_for<T>(s.top - from));
    return {top, top == V(-INFINITY) ? V(NAN) : sum};
}

#endif
