/* Shared by tests of our own products: the engines of each instruction set, and numbers of any
 * dtype. */
#ifndef CHOIR_TEST_PRODUCTS_FIXTURE_H
#define CHOIR_TEST_PRODUCTS_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "check.h"
#include "copies.h"
#include "device/cpu/context.h"
#include "device/cpu/product/amx.h"
#include "device/cpu/product/product.h"

typedef void matmul_fn(const choir__k_matmul *k);
typedef void pairs_fn(const choir__k_matmul *k, const choir__operands *other);
#define DECLARE(isa)                                                                           \
    matmul_fn choir__cpu_own_matmul_##isa;                                                     \
    pairs_fn choir__cpu_product_pairs_##isa;
COPIES(DECLARE)

static const struct {
    const char *isa;
    matmul_fn *multiply;
    pairs_fn *multiply_pairs; /* the class amx: by the instruction, or by its model */
} sets[] = {
#define SET(isa) {#isa, choir__cpu_own_matmul_##isa, choir__cpu_product_pairs_##isa},
    COPIES(SET)};
static bool pairs; /* the class amx is tried */

static uint64_t state;

static inline int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

/* --- elements of any dtype --- */

static inline double get(const void *p, int64_t i, choir_dtype dtype)
{
    switch (dtype) {
    case CHOIR_F64: return ((const double *)p)[i];
    case CHOIR_BF16: return (double)choir__f32_from_bf16(((const uint16_t *)p)[i]);
    case CHOIR_F16: return (double)choir__f32_from_f16(((const uint16_t *)p)[i]);
    default: return (double)((const float *)p)[i];
    }
}

static inline void put(void *p, int64_t i, choir_dtype dtype, double x)
{
    switch (dtype) {
    case CHOIR_F64: ((double *)p)[i] = x; break;
    case CHOIR_BF16: ((uint16_t *)p)[i] = choir__bf16_from_f32((float)x); break;
    case CHOIR_F16: ((uint16_t *)p)[i] = choir__f16_from_f32((float)x); break;
    default: ((float *)p)[i] = (float)x;
    }
}

enum { SMALL = -1 };

/* Returns n elements; `special`: some are denormal, -0, infinite or NaN; SMALL: all are small.
 */
static inline void *numbers(int64_t n, choir_dtype dtype, int special)
{
    static const double rare[] = {0x1p-140, -0x1p-149, -0.0, -0.0, 0x1p-75, -0x1p-75, 0x1.8p-24,
        0x1p100, -0x1p100, INFINITY, -INFINITY, NAN};
    /* Their products and sums lie around the smallest normal number, 2^-126. */
    static const double tiny[] = {0x1p-130, -0x1p-133, -0.0, 0x1p-63, -0x1.02p-63, 0x1.fep-64,
        -0x1p-63, 0x1p-126, -0x1.04p-126, 0x1.fep-70, -0x1.fep-57, -0x1p-75};
    const int most = special == SMALL ? (int)CHOIR_COUNT(tiny) : special;
    void *p = aligned_alloc(64, ((size_t)(n + 1) * choir_dtype_size(dtype) + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++)
        put(p, i, dtype,
            special == SMALL           ? tiny[below(most)]
            : special && below(4) == 0 ? rare[below(most)]
                                       : (double)below(1 << 24) / (1 << 23) - 1);
    return p;
}

static inline void multiply_by(size_t set, const choir__k_matmul *k)
{
    if (pairs)
        sets[set].multiply_pairs(k, NULL);
    else
        sets[set].multiply(k);
}

#endif
