/* The arguments and the arithmetic of the hash kernel. kernels.h includes this header.
 *
 * The hash of a tensor is a sum modulo 2^64 over its elements: an element's bits times an odd
 * number that its place in the whole tensor gives. Sums may be added in any order, so parts of
 * a tensor on several ranks, threads and blocks of a GPU give the hash of the whole, whatever
 * the cut. One element that changes always changes the sum, because odd numbers have inverses;
 * many that change leave it as it is with a chance of about 2^-33 at most, if all of them
 * change in their highest bit alone, and else of 2^-64. So the hash finds faults, and is no
 * signature. */
#ifndef CHOIR_KERNELS_HASH_H
#define CHOIR_KERNELS_HASH_H

#include <stdint.h>
#include <string.h>

#include <choir/dtype.h>
#include "base/base.h"

/* *sum += the hash of x: rows of cols elements, `row` elements apart. Element (r, c) is number
 * at + r * at_row + c of the whole tensor. A NaN counts as the one of base/nan.h. x has any
 * dtype. */
typedef struct choir__k_hash {
    const void *x;
    uint64_t *sum;
    int64_t rows, cols, row, at, at_row;
    choir_dtype dtype;
} choir__k_hash;

#define CHOIR__HASH_STEP UINT64_C(0x9E3779B97F4A7C15)

/* Returns the number of a pair of words, whose halves are odd. Words are counted over the whole
 * tensor: an element of at most 32 bits is one, and an element of 64 bits is two. */
CHOIR__BOTH static inline uint64_t choir__hash_pair(uint64_t pair)
{
    uint64_t z = (pair + 1) * CHOIR__HASH_STEP;
    z ^= z >> 32;
    z += (z & 0xffffffff) * (z >> 32);
    return (z ^ z >> 32) | UINT64_C(0x100000001);
}

/* Returns the odd number of word `place`: the second word of a pair has the halves exchanged.
 */
CHOIR__BOTH static inline uint64_t choir__hash_number(uint64_t place)
{
    uint64_t pair = choir__hash_pair(place >> 1);
    return place & 1 ? pair << 32 | pair >> 32 : pair;
}

/* Returns the term of a word. */
CHOIR__BOTH static inline uint64_t choir__hash_word(uint32_t word, uint64_t place)
{
    return word * choir__hash_number(place);
}

CHOIR__BOTH static inline uint64_t choir__hash_wide(uint64_t bits, uint64_t place)
{
    return choir__hash_word((uint32_t)bits, 2 * place) +
           choir__hash_word((uint32_t)(bits >> 32), 2 * place + 1);
}

/* Replaces a NaN, whose bits without the sign are greater than infinity's. */
CHOIR__BOTH static inline uint32_t choir__hash_float(
    uint32_t bits, uint32_t sign, uint32_t infinity, uint32_t nan)
{
    return (bits & (sign - 1)) > infinity ? nan : bits;
}

/* Returns the term of element `place` of the whole tensor, which is at x. */
CHOIR__BOTH static inline uint64_t choir__hash_element(
    const void *x, choir_dtype dtype, uint64_t place)
{
    uint64_t wide;
    uint32_t word = 0;
    uint16_t half;
    switch (dtype) {
    case CHOIR_F32:
        memcpy(&word, x, sizeof word);
        return choir__hash_word(
            choir__hash_float(word, 0x80000000u, 0x7f800000u, 0x7fc00000u), place);
    case CHOIR_BF16:
        memcpy(&half, x, sizeof half);
        return choir__hash_word(choir__hash_float(half, 0x8000u, 0x7f80u, 0x7fc0u), place);
    case CHOIR_F16:
        memcpy(&half, x, sizeof half);
        return choir__hash_word(choir__hash_float(half, 0x8000u, 0x7c00u, 0x7e00u), place);
    case CHOIR_F64:
        memcpy(&wide, x, sizeof wide);
        if ((wide & (UINT64_MAX >> 1)) > UINT64_C(0x7ff) << 52)
            wide = UINT64_C(0x7ff8) << 48;
        return choir__hash_wide(wide, place);
    case CHOIR_I64: memcpy(&wide, x, sizeof wide); return choir__hash_wide(wide, place);
    case CHOIR_I32: memcpy(&word, x, sizeof word); return choir__hash_word(word, place);
    default: return choir__hash_word(*(const unsigned char *)x, place);
    }
}

#endif
