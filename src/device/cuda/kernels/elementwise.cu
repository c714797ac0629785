/* fill, add_scaled, the broadcasting binary ops, and functions of one element.
 *
 * Memory is the limit for all of them, so each byte should move once, 16 at a time. Ops are
 * chosen by a switch around the elements of a slot, which costs a few instructions; a kernel
 * for each op and type would mean several hundred kernels. */
#include "base/half.h"
#include "device/cuda/kit/pack.cuh"
#include "device/cuda/kit/vector.cuh"
#include "device/cuda/kit/walk.cuh"

/* --- fill --- */

struct filling {
    void *y;
    int64_t n;
    uint64_t bits; /* bits of one element */
};

/* Fills a 16-byte slot with 1, 2, 4 or 8-byte elements W. */
template <class W> __global__ void fill(flat<filling> f)
{
    enum { N = 16 / sizeof(W) };
    several<W, N> s;
    W *y = (W *)f.k.y;
    for (int j = 0; j < N; j++)
        s.e[j] = (W)f.k.bits;
    int64_t slots = (f.k.n + f.lead + N - 1) / N;
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * N - f.lead;
        if (c >= 0 && c + N <= f.k.n)
            *(several<W, N> *)(y + c) = s;
        else
            for (int j = 0; j < N; j++)
                if (c + j >= 0 && c + j < f.k.n)
                    y[c + j] = (W)f.k.bits;
    }
}

/* Truncates towards zero; values outside become the nearest of [least, most], and NaN 0. */
static int64_t truncated(double value, int64_t least, int64_t most)
{
    if (value >= (double)most) /* 2^63 for i64, which does not fit */
        return most;
    return value <= (double)least ? least : value == value ? (int64_t)value : 0;
}

static uint64_t bits_of(double value, choir_dtype dtype)
{
    uint64_t bits = 0;
    float narrow = (float)value;
    switch (dtype) {
    case CHOIR_F32: memcpy(&bits, &narrow, sizeof narrow); return bits;
    case CHOIR_F64: memcpy(&bits, &value, sizeof value); return bits;
    case CHOIR_BF16: return choir__bf16_from_f32(narrow);
    case CHOIR_F16: return choir__f16_from_f32(narrow);
    case CHOIR_I64: return (uint64_t)truncated(value, INT64_MIN, INT64_MAX);
    case CHOIR_I32: return (uint32_t)truncated(value, INT32_MIN, INT32_MAX);
    case CHOIR_U8: return (uint8_t)truncated(value, 0, UINT8_MAX);
    default: return value != 0;
    }
}

template <class W> static void launch_fill(const filling &k)
{
    int lead = (int)((uintptr_t)k.y % 16 / sizeof(W));
    flat<filling> f = {k, lead};
    launch(fill<W>, grid_for((k.n + lead) * (int64_t)sizeof(W) / 16 + 1), BLOCK, 0, f);
}

extern "C" void choir__cuda_fill(const choir__k_fill *k)
{
    size_t size = choir_dtype_size(k->dtype);
    filling f = {k->y, k->n, bits_of(k->value, k->dtype)};
    if (k->n <= 0)
        return;
    if (f.bits == 0)
        choir__cuda_ok(
            cudaMemsetAsync(k->y, 0, (size_t)k->n * size, choir__cuda_here()->stream),
            "fill's cudaMemsetAsync");
    else if (size == 1)
        launch_fill<uint8_t>(f);
    else if (size == 2)
        launch_fill<uint16_t>(f);
    else if (size == 4)
        launch_fill<uint32_t>(f);
    else
        launch_fill<uint64_t>(f);
}

/* --- add_scaled --- */

/* (a + b) * scale cannot be contracted, so all devices give the same bits. */
template <class A> __global__ void add_scaled(flat<choir__k_add_scaled> f)
{
    int64_t slots = slots_of<A>(f);
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        typename A::V a[A::N], b[A::N];
        load<A>(a, f.k.a, c, f.k.n);
        if (f.k.b)
            load<A>(b, f.k.b, c, f.k.n);
#pragma unroll
        for (int j = 0; j < A::N; j++)
            a[j] = (f.k.b ? a[j] + b[j] : a[j]) * f.k.scale;
        store<A>(f.k.y, c, f.k.n, a);
    }
}

/* Like add_scaled, for a b of H, 16 bits, beside f32. */
template <class H> __global__ void add_half(in_packs<choir__k_add_scaled> f)
{
    enum { N = pack<float>::N };
    for (int64_t i = first_thread(); i < packs_of<float>(f.k.n); i += all_threads()) {
        int64_t c = i * N, left = f.k.n - c;
        bool whole = f.whole && left >= N;
        pack<float> a = load((const float *)f.k.a + c, left, whole);
        pack<float> b = load_beside<float>((const H *)f.k.b + c, left, whole);
#pragma unroll
        for (int j = 0; j < N; j++)
            a.at[j] = (a.at[j] + b.at[j]) * f.k.scale;
        store((float *)f.k.y + c, a, left, whole);
    }
}

extern "C" void choir__cuda_add_scaled(const choir__k_add_scaled *k)
{
    if (k->b_half) {
        in_packs<choir__k_add_scaled> args = {*k, aligned(k->a, k->b, k->y)};
        unsigned grid = grid_for(packs_of<float>(k->n));
        if (k->b_half == CHOIR_BF16)
            launch(add_half<bf16>, grid, BLOCK, 0, args);
        else
            launch(add_half<f16>, grid, BLOCK, 0, args);
        return;
    }
    int lead = lead_of(choir_dtype_size(k->dtype), k->a, k->b, k->y);
    choose_access(k->dtype, lead,
        [&](auto a) { launch_flat<decltype(a)>(add_scaled<decltype(a)>, *k, lead); });
}

/* --- round --- */

template <class H> __global__ void round_runs(choir__k_round k)
{
    enum { N = pack<float>::N };
    for (int r = 0; r < k.count; r++) {
        const float *x = k.run[r].x;
        H *y = (H *)k.run[r].y;
        const bool whole = (((uintptr_t)x | (uintptr_t)y) & 15) == 0;
        for (int64_t i = first_thread(); i < packs_of<float>(k.run[r].n); i += all_threads()) {
            int64_t c = i * N, left = k.run[r].n - c;
            float v[N];
            load_wide(v, x + c, left, whole && left >= N, 0.0f);
            store_beside<float>(y + c, v, left, whole && left >= N);
        }
    }
}

extern "C" void choir__cuda_round(const choir__k_round *k)
{
    int64_t most = 0;
    for (int r = 0; r < k->count; r++)
        most = choir__max(most, k->run[r].n);
    if (!most)
        return;
    unsigned grid = grid_for(packs_of<float>(most));
    if (k->dtype == CHOIR_BF16)
        launch(round_runs<bf16>, grid, BLOCK, 0, *k);
    else
        launch(round_runs<f16>, grid, BLOCK, 0, *k);
}

/* --- binary --- */

template <class V> __device__ inline V share(V a, V b)
{
    return a < b ? V(0) : a == b ? V(0.5) : V(1);
}

template <class V, int N>
__device__ inline void join(V (&a)[N], const V (&b)[N], choir__binary_op op)
{
#pragma unroll
    for (int j = 0; j < N; j++)
        a[j] = op == CHOIR__ADD       ? a[j] + b[j]
               : op == CHOIR__SUB     ? a[j] - b[j]
               : op == CHOIR__MUL     ? a[j] * b[j]
               : op == CHOIR__DIV     ? a[j] / b[j]
               : op == CHOIR__MAXIMUM ? (a[j] != a[j] || a[j] > b[j] ? a[j] : b[j])
               : op == CHOIR__MINIMUM ? (a[j] != a[j] || a[j] < b[j] ? a[j] : b[j])
               : op == CHOIR__PORTION ? share(a[j], b[j])
                                      : pow(a[j], b[j]);
}

struct run_of_pairs {
    void *y;
    const void *a, *b;
    int64_t n;
    choir__binary_op op;
};

template <class A> __global__ void binary_run(flat<run_of_pairs> f)
{
    int64_t slots = slots_of<A>(f);
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        typename A::V a[A::N], b[A::N];
        load<A>(a, f.k.a, c, f.k.n);
        load<A>(b, f.k.b, c, f.k.n, 1);
        join(a, b, f.k.op);
        store<A>(f.k.y, c, f.k.n, a);
    }
}

/* places counts slots; an operand marked in `one` has one element for a whole slot. */
struct strided_pairs {
    void *y;
    const void *a, *b;
    places at;
    bool one_a, one_b;
    choir__binary_op op;
};

template <class A>
__device__ inline void load_or_spread(
    typename A::V (&v)[A::N], const void *p, int64_t at, bool one)
{
    if (!one) {
        load<A>(v, p, at, at + A::N);
        return;
    }
    typename A::V x = get((const typename A::T *)p + at);
#pragma unroll
    for (int j = 0; j < A::N; j++)
        v[j] = x;
}

template <class A> __global__ void binary_strided(strided_pairs k)
{
    for (int64_t i = first_thread(); i < k.at.count; i += all_threads()) {
        int64_t off[3];
        typename A::V a[A::N], b[A::N];
        place_at(k.at, (uint32_t)i, off);
        load_or_spread<A>(a, k.a, off[1], k.one_a);
        load_or_spread<A>(b, k.b, off[2], k.one_b);
        join(a, b, k.op);
        store<A>(k.y, off[0], off[0] + A::N, a);
    }
}

/* True if slots of n elements fit: inner strides are 1, or 0 if broadcast, and everything else
 * and the addresses (`lead` 0) are multiples of n. */
static bool suits_slots(const walk *w, int lead, int64_t n)
{
    int last = w->ndim - 1;
    bool ok = lead == 0 && w->stride[last][0] == 1 && w->shape[last] % n == 0;
    for (int o = 1; o < w->operands; o++)
        ok = ok && (w->stride[last][o] == 1 || w->stride[last][o] == 0);
    for (int d = 0; d < last; d++)
        for (int o = 0; o < w->operands; o++)
            ok = ok && (w->stride[last][o] == 0 || w->stride[d][o] % n == 0);
    return ok;
}

static void binary_walk(const choir__k_binary *k, const walk *w)
{
    int64_t size = (int64_t)choir_dtype_size(k->dtype), n = 16 / size;
    int last = w->ndim - 1;
    bool one_a = w->stride[last][1] == 0, one_b = w->stride[last][2] == 0;
    int lead = lead_of((size_t)size, k->y.p, one_a ? k->y.p : k->a.p, one_b ? k->y.p : k->b.p);
    bool slots = suits_slots(w, lead, n);
    walk in_slots = *w;
    if (slots) {
        in_slots.shape[last] /= n;
        for (int o = 0; o < WALK_OPERANDS; o++)
            in_slots.stride[last][o] *= n;
    }
    walk_parts(&in_slots, [&](const walk *part, const int64_t *off) {
        strided_pairs p = {(char *)k->y.p + off[0] * size, (char *)k->a.p + off[1] * size,
            (char *)k->b.p + off[2] * size, places_of(part), slots && one_a, slots && one_b,
            k->op};
        choose_access(k->dtype, slots ? 0 : -1, [&](auto a) {
            launch(binary_strided<decltype(a)>, grid_for(p.at.count), BLOCK, 0, p);
        });
    });
}

extern "C" void choir__cuda_binary(const choir__k_binary *k)
{
    walk w = walk_of(k->shape, k->ndim, {&k->y, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    const int64_t *s = w.stride[0];
    if (w.ndim == 1 && s[0] == 1 && s[1] == 1 && s[2] == 1) {
        run_of_pairs p = {k->y.p, k->a.p, k->b.p, w.shape[0], k->op};
        int lead = lead_of(choir_dtype_size(k->dtype), p.y, p.a, p.b);
        choose_access(k->dtype, lead,
            [&](auto a) { launch_flat<decltype(a)>(binary_run<decltype(a)>, p, lead); });
    } else {
        binary_walk(k, &w);
    }
}
