/* Blocks of every type in which weights are read, also of types that are not written. */
#ifndef CHOIR_TESTS_BLOCKS_FIXTURE_H
#define CHOIR_TESTS_BLOCKS_FIXTURE_H

#include "base/quant/quant.h"
#include "check.h"

/* Stores small numbers as f16 where a block of a type that is not written has its scales. */
static inline void put_scales(choir__quant type, uint8_t *block, uint32_t random)
{
    const int at = type == CHOIR__Q2_K ? 80 : type == CHOIR__Q3_K ? 108 : 0;
    for (int i = 0; i < (type == CHOIR__Q3_K ? 1 : 2); i++) {
        const uint32_t half = (random >> 15 * i & 0x83ff) | 0x1c00;
        block[at + 2 * i] = (uint8_t)half;
        block[at + 2 * i + 1] = (uint8_t)(half >> 8);
    }
}

/* Writes n values as blocks, or else any codes with small scales, which depend on `seed`. */
static inline void some_blocks(
    choir__quant type, uint8_t *to, const float *values, int64_t n, uint32_t seed)
{
    if (choir__quant_is_written(type)) {
        choir__quant_encode(type, to, values, n);
        return;
    }
    const choir__quant_type *t = &choir__quant_types[type];
    const int64_t bytes = choir__quant_bytes(type, n);
    for (int64_t i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (uint8_t)(seed >> 24);
    }
    for (int64_t i = 0; i < bytes; i += t->bytes) {
        seed = seed * 1664525u + 1013904223u;
        put_scales(type, to + i, seed);
    }
}

#endif
