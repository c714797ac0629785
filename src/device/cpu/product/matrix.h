/* An operand of a product: entries (rows of A, or columns of B) along k. */
#ifndef CHOIR_PRODUCT_MATRIX_H
#define CHOIR_PRODUCT_MATRIX_H

#include "base/quant/quant.h"
#include "device/cpu/isa/isa.h"

/* Entry i is `apart` elements from entry i - 1, and its elements are `next` apart. windows: the
 * operand is gathered from images instead, or NULL. held: unless it is F32, the operand is rows
 * of blocks of that type, row_bytes apart, and dtype what its values are rounded to. */
typedef struct matrix {
    const void *p;
    int64_t apart, next;
    choir_dtype dtype;
    const struct choir__windows *windows;
    choir__quant held;
    int64_t row_bytes;
} matrix;

/* Elements of entries that follow each other along k. */
typedef struct span {
    int64_t k, at, some; /* the first one's place along k and in a panel, and their number */
} span;

INLINE const void *element_at(const matrix *x, int64_t entry, int64_t k)
{
    int64_t at = entry * x->apart + k * x->next;
    return (const char *)x->p + at * (int64_t)choir_dtype_size(x->dtype);
}

/* Returns n as a multiple of `each`. */
INLINE int64_t whole(int64_t n, int64_t each)
{
    return (n + each - 1) / each * each;
}

#endif
