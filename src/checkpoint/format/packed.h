/* Tensors whose values a mapped file does not have as numbers in order: rows of blocks
 * (base/quant), and rows in another order within heads.
 *
 * GGUF files of some families have the rows of a head for rotary positions of neighbours:
 *
 *     here   | 0 1 2 3 | 4 5 6 7 |        there, one head of 8 rows   | 0 4 1 5 2 6 3 7 |
 *
 * Such a tensor has one dimension or two. Its readers get values, or rows of blocks, where the
 * file is mapped; nothing is unpacked as a whole. */
#ifndef CHOIR_PACKED_H
#define CHOIR_PACKED_H

#include "checkpoint/format/safetensors.h"

static inline bool choir__is_packed(const choir__st_tensor *t)
{
    return t->blocks != CHOIR__F32 || t->heads;
}

/* Returns the values of a row. One dimension is a row, or, if its entries are in another order,
 * rows of one value. */
int64_t choir__packed_cols(const choir__st_tensor *t);

/* Returns where the blocks of a row are. */
const uint8_t *choir__packed_row(const choir__st_tensor *t, int64_t row);

/* Reads values [first, first + n), in order. */
void choir__packed_read(const choir__st_tensor *t, int64_t first, int64_t n, float *values);

/* Returns the index of the first value that is not finite, or -1. */
int64_t choir__packed_nonfinite(const choir__st_tensor *t, float *value);

#endif
