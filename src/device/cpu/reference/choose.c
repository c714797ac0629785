/* Reference kernels that compare, and that choose between two tensors by a mask. */
#include <string.h>

#include "device/cpu/reference/reference.h"

static bool holds(choir__compare_op op, double a, double b)
{
    switch (op) {
    case CHOIR__EQ: return a == b;
    case CHOIR__NE: return a != b;
    case CHOIR__LT: return a < b;
    case CHOIR__LE: return a <= b;
    case CHOIR__GT: return a > b;
    case CHOIR__GE: return a >= b;
    case CHOIR__AND: return a != 0 && b != 0;
    case CHOIR__OR: return a != 0 || b != 0;
    case CHOIR__XOR: return (a != 0) != (b != 0);
    case CHOIR__COMPARE_COUNT: break;
    }
    return false;
}

void choir__reference_compare(const choir__k_compare *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0};
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        int64_t at_a = offset_of(&k->a, index, k->ndim),
                at_b = offset_of(&k->b, index, k->ndim);
        double a = 0, b = 0;
        if (is_integer(k->dtype) && k->op < CHOIR__AND) { /* the signs of a - b and 0 */
            int64_t p = get_integer(k->a.p, at_a, k->dtype);
            int64_t q = get_integer(k->b.p, at_b, k->dtype);
            a = (p > q) - (p < q);
        } else {
            a = get(k->a.p, at_a, k->dtype), b = get(k->b.p, at_b, k->dtype);
        }
        put_integer(k->y.p, offset_of(&k->y, index, k->ndim), CHOIR_BOOL, holds(k->op, a, b));
    } while (next_index(index, k->shape, k->ndim));
}

void choir__reference_where(const choir__k_where *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0};
    size_t size = choir_dtype_size(k->dtype);
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        bool first = ((const uint8_t *)k->mask.p)[offset_of(&k->mask, index, k->ndim)] != 0;
        const choir__strided *from = first ? &k->a : &k->b;
        memcpy((char *)k->y.p + (size_t)offset_of(&k->y, index, k->ndim) * size,
            (const char *)from->p + (size_t)offset_of(from, index, k->ndim) * size, size);
    } while (next_index(index, k->shape, k->ndim));
}
