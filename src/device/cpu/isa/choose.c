/* Comparisons, and the choice between two tensors by a mask. Both visit rows of strided
 * operands, as the binary ops do; a row of dense operands is a loop that compilers make vectors
 * of, since nothing in it depends on the order. */
#include "device/cpu/isa/walk.h"

/* One row; each operand has a stride. */
typedef void compare_row(
    uint8_t *y, int64_t ys, const void *a, int64_t as, const void *b, int64_t bs, int64_t n);

#define COMPARE(name, T, expression)                                                           \
    INLINE void name##_row(                                                                    \
        uint8_t *y, int64_t ys, const T *a, int64_t as, const T *b, int64_t bs, int64_t n)     \
    {                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                      \
            T p = a[i * as], q = b[i * bs];                                                    \
            y[i * ys] = (expression);                                                          \
        }                                                                                      \
    }                                                                                          \
    static void name(uint8_t *y, int64_t ys, const void *a, int64_t as, const void *b,         \
        int64_t bs, int64_t n)                                                                 \
    {                                                                                          \
        if (ys == 1 && as == 1 && bs == 1)                                                     \
            name##_row(y, 1, a, 1, b, 1, n);                                                   \
        else if (ys == 1 && as == 1 && bs == 0)                                                \
            name##_row(y, 1, a, 1, b, 0, n);                                                   \
        else                                                                                   \
            name##_row(y, ys, a, as, b, bs, n);                                                \
    }

#define COMPARISONS(T)                                                                         \
    COMPARE(eq_##T, T, p == q)                                                                 \
    COMPARE(ne_##T, T, p != q)                                                                 \
    COMPARE(lt_##T, T, p < q)                                                                  \
    COMPARE(le_##T, T, p <= q)                                                                 \
    COMPARE(and_##T, T, (p != 0) & (q != 0))                                                   \
    COMPARE(or_##T, T, (p != 0) | (q != 0))                                                    \
    COMPARE(xor_##T, T, (p != 0) ^ (q != 0))                                                   \
    static compare_row *const compare_##T[CHOIR__COMPARE_COUNT] = {                            \
        [CHOIR__EQ] = eq_##T,                                                                  \
        [CHOIR__NE] = ne_##T,                                                                  \
        [CHOIR__LT] = lt_##T,                                                                  \
        [CHOIR__LE] = le_##T,                                                                  \
        [CHOIR__GT] = lt_##T, /* with its operands exchanged */                                \
        [CHOIR__GE] = le_##T,                                                                  \
        [CHOIR__AND] = and_##T,                                                                \
        [CHOIR__OR] = or_##T,                                                                  \
        [CHOIR__XOR] = xor_##T,                                                                \
    };
COMPARISONS(float)
COMPARISONS(int64_t)
COMPARISONS(int32_t)
COMPARISONS(uint8_t)

static compare_row *compare_of(choir_dtype dtype, choir__compare_op op)
{
    switch (dtype) {
    case CHOIR_F32: return compare_float[op];
    case CHOIR_I64: return compare_int64_t[op];
    case CHOIR_I32: return compare_int32_t[op];
    case CHOIR_U8:
    case CHOIR_BOOL: return compare_uint8_t[op];
    default: return NULL;
    }
}

void KERNEL(compare)(const choir__k_compare *k)
{
    compare_row *row = compare_of(k->dtype, k->op);
    int64_t size = (int64_t)choir_dtype_size(k->dtype);
    bool turned = k->op == CHOIR__GT || k->op == CHOIR__GE;
    const choir__strided *a = turned ? &k->b : &k->a, *b = turned ? &k->a : &k->b;
    if (!row) { /* 16 bits and f64 */
        CHOIR__BY_REFERENCE(compare, k);
        return;
    }
    walk w = walk_of(k->shape, k->ndim, 3, (const choir__strided *[]){&k->y, a, b});
    if (!walk_simplify(&w))
        return;
    const int64_t *s = w.stride[w.ndim - 1];
    int64_t at[CHOIR__MAX_DIMS] = {0}, off[WALK_OPERANDS] = {0};
    do
        row((uint8_t *)w.p[0] + off[0], s[0], (const char *)w.p[1] + off[1] * size, s[1],
            (const char *)w.p[2] + off[2] * size, s[2], w.shape[w.ndim - 1]);
    while (walk_next(&w, at, off));
}

/* --- where --- */

#define CHOOSE(T)                                                                              \
    INLINE void choose_##T##_row(T *y, int64_t ys, const uint8_t *m, int64_t ms, const T *a,   \
        int64_t as, const T *b, int64_t bs, int64_t n)                                         \
    {                                                                                          \
        for (int64_t i = 0; i < n; i++) {                                                      \
            T p = a[i * as], q = b[i * bs];                                                    \
            y[i * ys] = m[i * ms] ? p : q;                                                     \
        }                                                                                      \
    }                                                                                          \
    static void choose_##T(const walk *w, const int64_t *off)                                  \
    {                                                                                          \
        const int64_t *s = w->stride[w->ndim - 1], n = w->shape[w->ndim - 1];                  \
        T *y = (T *)w->p[0] + off[0];                                                          \
        const uint8_t *m = (const uint8_t *)w->p[1] + off[1];                                  \
        const T *a = (const T *)w->p[2] + off[2], *b = (const T *)w->p[3] + off[3];            \
        bool dense = s[0] == 1 && s[1] == 1;                                                   \
        if (dense && s[2] == 1 && s[3] == 1)                                                   \
            choose_##T##_row(y, 1, m, 1, a, 1, b, 1, n);                                       \
        else if (dense && s[2] == 0 && s[3] == 1)                                              \
            choose_##T##_row(y, 1, m, 1, a, 0, b, 1, n);                                       \
        else if (dense && s[2] == 1 && s[3] == 0)                                              \
            choose_##T##_row(y, 1, m, 1, a, 1, b, 0, n);                                       \
        else                                                                                   \
            choose_##T##_row(y, s[0], m, s[1], a, s[2], b, s[3], n);                           \
    }
CHOOSE(uint8_t)
CHOOSE(uint16_t)
CHOOSE(uint32_t)
CHOOSE(uint64_t)

void KERNEL(where)(const choir__k_where *k)
{
    walk w = walk_of(
        k->shape, k->ndim, 4, (const choir__strided *[]){&k->y, &k->mask, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    int64_t at[CHOIR__MAX_DIMS] = {0}, off[WALK_OPERANDS] = {0};
    do
        switch (choir_dtype_size(k->dtype)) {
        case 1: choose_uint8_t(&w, off); break;
        case 2: choose_uint16_t(&w, off); break;
        case 4: choose_uint32_t(&w, off); break;
        default: choose_uint64_t(&w, off); break;
        }
    while (walk_next(&w, at, off));
}
