/* Collectives of any kind, type and operation on made-up numbers, and their expected results,
 * computed directly from the definitions: reductions by recursion over the fixed tree, one
 * element at a time. */
#ifndef CHOIR_TESTS_COLLECTIVES_FIXTURE_H
#define CHOIR_TESTS_COLLECTIVES_FIXTURE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <choir/group.h>

#include "base/base.h"
#include "base/half.h"
#include "comm/call.h"

typedef struct trial {
    choir__kind kind;
    choir_dtype dtype;
    choir_reduce_op op;
    int64_t count;
    int world, root;
    bool in_place, uneven;
    bool tree; /* exactly the bits of the fixed tree; else nearly */
} trial;

static inline const char *trial_text(const trial *t, char text[200])
{
    choir__stamp stamp = {.count = (uint64_t)t->count,
        .kind = (uint8_t)t->kind,
        .dtype = (uint8_t)t->dtype,
        .op = (uint8_t)t->op,
        .root = t->root};
    char words[CHOIR__STAMP_TEXT];
    snprintf(text, 200, "%s%s%s on %d ranks", choir__stamp_text(&stamp, words),
        t->uneven ? " uneven" : "", t->in_place ? " in place" : "", t->world);
    return text;
}

static inline bool trial_reduces(const trial *t)
{
    return t->kind == CHOIR__REDUCE || t->kind == CHOIR__ALL_REDUCE ||
           t->kind == CHOIR__REDUCE_SCATTER;
}

/* --- numbers --- */

typedef union number {
    float f32;
    double f64;
    int64_t i64;
    int32_t i32;
    uint16_t half;
    uint8_t u8;
} number;

static inline uint64_t noise(int rank, int64_t i)
{
    uint64_t z = (uint64_t)i * 64 + (uint64_t)rank + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns element i of a rank, as stored in memory. */
static inline number value(choir_dtype dtype, int rank, int64_t i)
{
    uint64_t z = noise(rank, i);
    float f = (float)(int32_t)(z >> 32) * 1e-9f;
    number x = {.i64 = 0};
    switch (dtype) {
    case CHOIR_F32: x.f32 = f; break;
    case CHOIR_F64: x.f64 = (double)(int64_t)z * 1e-18; break;
    case CHOIR_BF16: x.half = choir__bf16_from_f32(f); break;
    case CHOIR_F16: x.half = choir__f16_from_f32(f); break;
    case CHOIR_I64: x.i64 = (int64_t)z; break;
    case CHOIR_I32: x.i32 = (int32_t)(z >> 32); break;
    case CHOIR_BOOL: x.u8 = z >> 63 ? 1 : 0; break;
    default: x.u8 = (uint8_t)(z >> 56); break;
    }
    return x;
}

/* Widens x to the type of partial results: f32 for 16-bit floats, i32 for a mean of bytes. */
static inline number widened(const trial *t, number x)
{
    number wide = x;
    if (t->dtype == CHOIR_BF16)
        wide.f32 = choir__f32_from_bf16(x.half);
    if (t->dtype == CHOIR_F16)
        wide.f32 = choir__f32_from_f16(x.half);
    if (t->dtype == CHOIR_U8 && t->op == CHOIR_MEAN)
        wide.i32 = x.u8;
    return wide;
}

#define PICK(result, a, b, plus, times)                                                        \
    switch (op) {                                                                              \
    case CHOIR_MIN: result = (a) < (b) ? (a) : (b); break;                                     \
    case CHOIR_MAX: result = (a) > (b) ? (a) : (b); break;                                     \
    case CHOIR_PRODUCT: result = times; break;                                                 \
    default: result = plus; break;                                                             \
    }

static inline int64_t bits_of(choir_reduce_op op, int64_t a, int64_t b)
{
    return op == CHOIR_BAND ? a & b : op == CHOIR_BOR ? a | b : a ^ b;
}

static inline number combined(const trial *t, number a, number b)
{
    const choir_reduce_op op = t->op;
    number r = {.i64 = 0};
    bool bitwise = op >= CHOIR_BAND;
    switch (t->dtype) {
    case CHOIR_F64: PICK(r.f64, a.f64, b.f64, a.f64 + b.f64, a.f64 * b.f64); break;
    case CHOIR_I64:
        PICK(r.i64, a.i64, b.i64, (int64_t)((uint64_t)a.i64 + (uint64_t)b.i64),
            (int64_t)((uint64_t)a.i64 * (uint64_t)b.i64));
        r.i64 = bitwise ? bits_of(op, a.i64, b.i64) : r.i64;
        break;
    case CHOIR_I32:
        PICK(r.i32, a.i32, b.i32, (int32_t)((uint32_t)a.i32 + (uint32_t)b.i32),
            (int32_t)((uint32_t)a.i32 * (uint32_t)b.i32));
        r.i32 = bitwise ? (int32_t)bits_of(op, a.i32, b.i32) : r.i32;
        break;
    case CHOIR_U8:
        if (op == CHOIR_MEAN) {
            r.i32 = a.i32 + b.i32;
            break;
        }
        PICK(r.u8, a.u8, b.u8, (uint8_t)(a.u8 + b.u8), (uint8_t)(a.u8 * b.u8));
        r.u8 = bitwise ? (uint8_t)bits_of(op, a.u8, b.u8) : r.u8;
        break;
    case CHOIR_BOOL: /* sums are "or", products "and" */
        PICK(r.u8, a.u8, b.u8, a.u8 | b.u8, a.u8 & b.u8);
        r.u8 = bitwise ? (uint8_t)bits_of(op, a.u8, b.u8) : r.u8;
        break;
    default: PICK(r.f32, a.f32, b.f32, a.f32 + b.f32, a.f32 * b.f32); break;
    }
    return r;
}

static inline number over_ranks(const trial *t, int lo, int n, int64_t i)
{
    int half = 1;
    if (n == 1)
        return widened(t, value(t->dtype, lo, i));
    while (2 * half < n)
        half *= 2;
    return combined(t, over_ranks(t, lo, half, i), over_ranks(t, lo + half, n - half, i));
}

/* Returns element i reduced over all ranks, as it must be stored in memory. */
static inline number reduced(const trial *t, int64_t i)
{
    number wide = over_ranks(t, 0, t->world, i), x = wide;
    bool mean = t->op == CHOIR_MEAN;
    float f = mean ? wide.f32 * (1.0f / (float)t->world) : wide.f32;
    switch (t->dtype) {
    case CHOIR_F32: x.f32 = f; break;
    case CHOIR_BF16: x.half = choir__bf16_from_f32(f); break;
    case CHOIR_F16: x.half = choir__f16_from_f32(f); break;
    case CHOIR_F64: x.f64 = mean ? wide.f64 * (1.0 / t->world) : wide.f64; break;
    case CHOIR_I64: x.i64 = mean ? wide.i64 / t->world : wide.i64; break;
    case CHOIR_I32: x.i32 = mean ? wide.i32 / t->world : wide.i32; break;
    case CHOIR_U8: x.u8 = mean ? (uint8_t)(wide.i32 / t->world) : wide.u8; break;
    default: break;
    }
    return x;
}

/* Returns whether an element is right: equal bits, or nearly equal floats if they may be added
 * in another order. */
static inline bool agrees(const trial *t, const char *at, number want)
{
    number got = {.i64 = 0};
    size_t size = choir_dtype_size(t->dtype);
    memcpy(&got, at, size);
    if (memcmp(&got, &want, size) == 0)
        return true;
    if (t->tree || !trial_reduces(t))
        return false;
    double a, b, near = 1e-5;
    switch (t->dtype) {
    case CHOIR_F32: a = (double)got.f32, b = (double)want.f32; break;
    case CHOIR_F64: a = got.f64, b = want.f64; break;
    case CHOIR_BF16:
        a = (double)choir__f32_from_bf16(got.half), b = (double)choir__f32_from_bf16(want.half);
        near = 1.0 / 64;
        break;
    case CHOIR_F16:
        a = (double)choir__f32_from_f16(got.half), b = (double)choir__f32_from_f16(want.half);
        near = 1.0 / 512;
        break;
    default: return false;
    }
    double size_of_it = b < 0 ? -b : b;
    return a - b <= near * (1 + size_of_it) && b - a <= near * (1 + size_of_it);
}

/* --- buffers --- */

/* Returns how many elements rank `from` sends to rank `to` if parts are uneven. */
static inline int64_t uneven_count(const trial *t, int from, int to)
{
    return t->count * ((from + 2 * to) % 4) / 3;
}

static inline int64_t in_elements(const trial *t, int rank)
{
    int64_t sum = 0;
    switch (t->kind) {
    case CHOIR__BARRIER: return 0;
    case CHOIR__SCATTER: return rank == t->root ? t->world * t->count : 0;
    case CHOIR__REDUCE_SCATTER: return t->world * t->count;
    case CHOIR__ALL_TO_ALL:
        for (int r = 0; r < t->world && t->uneven; r++)
            sum += uneven_count(t, rank, r);
        return t->uneven ? sum : t->world * t->count;
    default: return t->count;
    }
}

static inline int64_t out_elements(const trial *t, int rank)
{
    int64_t sum = 0;
    switch (t->kind) {
    case CHOIR__BARRIER: return 0;
    case CHOIR__GATHER: return rank == t->root ? t->world * t->count : 0;
    case CHOIR__ALL_GATHER: return t->world * t->count;
    case CHOIR__ALL_TO_ALL:
        for (int r = 0; r < t->world && t->uneven; r++)
            sum += uneven_count(t, r, rank);
        return t->uneven ? sum : t->world * t->count;
    default: return t->count;
    }
}

/* Returns element i of this rank's expected result. *any: the element is not specified. */
static inline number expected(const trial *t, int rank, int64_t i, bool *any)
{
    int64_t n = t->count;
    *any = false;
    switch (t->kind) {
    case CHOIR__BROADCAST: return value(t->dtype, t->root, i);
    case CHOIR__REDUCE:
        if (rank != t->root && t->in_place)
            return value(t->dtype, rank, i); /* untouched */
        *any = rank != t->root;
        return reduced(t, i);
    case CHOIR__ALL_REDUCE: return reduced(t, i);
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER: return value(t->dtype, (int)(i / n), i % n);
    case CHOIR__SCATTER: return value(t->dtype, t->root, rank * n + i);
    case CHOIR__REDUCE_SCATTER: return reduced(t, rank * n + i);
    default: break;
    }
    if (!t->uneven)
        return value(t->dtype, (int)(i / n), rank * n + i % n);
    for (int from = 0;; from++) { /* where rank `from` had it */
        int64_t at = 0, part = uneven_count(t, from, rank);
        for (int to = 0; to < rank; to++)
            at += uneven_count(t, from, to);
        if (i < part)
            return value(t->dtype, from, at + i);
        i -= part;
    }
}

/* One rank's memory of a trial. in and out overlap where the trial is in place. */
typedef struct trial_memory {
    char *base, *in, *out;
    int64_t in_count, out_count;
} trial_memory;

static inline void trial_fill(trial_memory *m, const trial *t, int rank)
{
    size_t size = choir_dtype_size(t->dtype);
    for (int64_t i = 0; i < m->in_count; i++) {
        number x = value(t->dtype, rank, i);
        memcpy(m->in + (size_t)i * size, &x, size);
    }
}

static inline trial_memory trial_open(const trial *t, int rank)
{
    size_t size = choir_dtype_size(t->dtype), mine = (size_t)(rank * t->count) * size;
    int64_t in = in_elements(t, rank), out = out_elements(t, rank);
    trial_memory m = {.in_count = in, .out_count = out};
    size_t bytes = (size_t)(in + out) * size + 256;
    m.base = malloc(bytes);
    memset(m.base, 0x5b, bytes);
    m.in = m.base + 8 * (size_t)(rank % 3); /* not all aligned alike */
    m.out = m.in + (size_t)in * size + 64 - 64 % size;
    if (t->in_place && in && out) {
        bool part_out = t->kind == CHOIR__REDUCE_SCATTER || t->kind == CHOIR__SCATTER;
        bool part_in = t->kind == CHOIR__GATHER || t->kind == CHOIR__ALL_GATHER;
        m.out = part_out ? m.in + mine : m.in;
        if (part_in)
            m.out = m.in, m.in = m.out + mine;
    }
    if (!out)
        m.out = t->kind == CHOIR__GATHER ? NULL : m.out;
    if (!in)
        m.in = NULL;
    trial_fill(&m, t, rank);
    return m;
}

/* Returns a message about the first wrong element, or NULL if all are right. If there are many
 * elements, most are skipped, but none of the first and last. */
static inline const char *trial_check(
    const trial_memory *m, const trial *t, int rank, char why[400])
{
    size_t size = choir_dtype_size(t->dtype);
    char text[200];
    bool any = false;
    int64_t step = m->out_count > 20000 ? 7 : 1, edge = 1000;
    for (int64_t i = 0; i < m->out_count; i += i < edge || i > m->out_count - edge ? 1 : step) {
        number want = expected(t, rank, i, &any), got = {.i64 = 0};
        if (any || agrees(t, m->out + (size_t)i * size, want))
            continue;
        memcpy(&got, m->out + (size_t)i * size, size);
        snprintf(why, 400, "%s, rank %d: element %" PRId64 " is %" PRIx64 ", want %" PRIx64,
            trial_text(t, text), rank, i, got.i64, want.i64);
        return why;
    }
    for (int64_t i = 0; i < m->in_count && !t->in_place; i += step) {
        number x = value(t->dtype, rank, i);
        if (memcmp(m->in + (size_t)i * size, &x, size) == 0)
            continue;
        snprintf(why, 400, "%s, rank %d: element %" PRId64 " of what it reads has changed",
            trial_text(t, text), rank, i);
        return why;
    }
    return NULL;
}

static inline void trial_close(trial_memory *m)
{
    free(m->base);
}

/* All kinds that users call, except send and receive. */
static const choir__kind trial_kinds[] = {CHOIR__BARRIER, CHOIR__BROADCAST, CHOIR__REDUCE,
    CHOIR__ALL_REDUCE, CHOIR__GATHER, CHOIR__ALL_GATHER, CHOIR__SCATTER, CHOIR__REDUCE_SCATTER,
    CHOIR__ALL_TO_ALL};

/* Returns whether dtype has the operation: bitwise ones are for integers, and bool has no
 * mean. */
static inline bool trial_possible(choir_dtype dtype, choir_reduce_op op)
{
    bool integer = dtype == CHOIR_I64 || dtype == CHOIR_I32 || dtype == CHOIR_U8;
    return dtype == CHOIR_BOOL ? op != CHOIR_MEAN : integer || op < CHOIR_BAND;
}

#endif
