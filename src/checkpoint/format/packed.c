/* Reads values of a tensor that a file stores as rows of blocks, perhaps in another order
 * within heads. Each access finds the row's place in the file and decodes only the blocks
 * that it needs, so the file stays mapped and a large tensor is never expanded as a whole. */
#include "checkpoint/format/packed.h"

#include <math.h>

#include "base/base.h"
#include "tensor/tensor.h"

int64_t choir__packed_cols(const choir__st_tensor *t)
{
    const int last = t->shape.ndim - 1;
    return last == 0 && t->heads ? 1 : t->shape.dim[last];
}

/* Returns the place in the file of a row. */
static int64_t place_of(const choir__st_tensor *t, int64_t row)
{
    if (!t->heads)
        return row;
    const int64_t each = t->shape.dim[0] / t->heads, half = each / 2, i = row % each;
    return row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

const uint8_t *choir__packed_row(const choir__st_tensor *t, int64_t row)
{
    return (const uint8_t *)t->data +
           place_of(t, row) * choir__quant_bytes(t->blocks, choir__packed_cols(t));
}

void choir__packed_read(const choir__st_tensor *t, int64_t first, int64_t n, float *values)
{
    const int64_t cols = choir__packed_cols(t);
    while (n > 0) {
        const int64_t col = first % cols, some = choir__min(n, cols - col);
        choir__quant_decode(t->blocks, values, choir__packed_row(t, first / cols), col, some);
        first += some;
        values += some;
        n -= some;
    }
}

int64_t choir__packed_nonfinite(const choir__st_tensor *t, float *value)
{
    const int64_t cols = choir__packed_cols(t), count = choir__shape_count(t->shape);
    for (int64_t row = 0; row * cols < count; row++) {
        const uint8_t *blocks = choir__packed_row(t, row);
        if (choir__quant_is_finite(t->blocks, blocks, cols))
            continue;
        for (int64_t col = 0; col < cols; col++) {
            choir__quant_decode(t->blocks, value, blocks, col, 1);
            if (!isfinite(*value))
                return row * cols + col;
        }
    }
    return -1;
}
