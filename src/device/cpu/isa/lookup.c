/* Lookups along a dimension, and the sums that are their gradients.
 *
 * Both walk the index, the tensor of its shape and, with stride 0 along the looked-up
 * dimension, the tensor that the index points into. Each dimension is visited in ascending
 * order, so the terms of one sum are added in the order of their positions. Where a row of the
 * walk has one index (choir_index_select), the row moves as a whole. */
#include "device/cpu/isa/walk.h"
#include "device/queue.h"

/* One row of the walk: n places; `step` is the stride of the looked-up dimension. */
typedef struct lookup {
    int64_t n, size, step;
    choir__lookup what;
    const int64_t *whole_index; /* for messages */
} lookup;

static bool is_inside(const lookup *l, const int64_t *index)
{
    if (*index >= 0 && *index < l->size)
        return true;
    choir__queue_fail(CHOIR_ERR_RANGE, "%s: index %lld at position %lld is outside [0, %lld)",
        choir__lookup_name(l->what), (long long)*index, (long long)(index - l->whole_index),
        (long long)l->size);
    return false;
}

/* a has the index's shape, b is pointed into: GATHER moves b to a, ADD adds a to b. */
#define LOOKUP_ROW(name, T, statement)                                                         \
    static bool name(const lookup *l, const walk *w, const int64_t *off)                       \
    {                                                                                          \
        const int64_t *s = w->stride[w->ndim - 1], as = s[0], is = s[1], bs = s[2];            \
        T *a = (T *)w->p[0] + off[0], *to = (T *)w->p[2] + off[2];                             \
        const int64_t *index = (const int64_t *)w->p[1] + off[1];                              \
        if (is == 0) {                                                                         \
            if (!is_inside(l, index))                                                          \
                return false;                                                                  \
            T *b = to + *index * l->step;                                                      \
            if (as == 1 && bs == 1)                                                            \
                for (int64_t i = 0; i < l->n; i++)                                             \
                    statement(a[i], b[i]);                                                     \
            else                                                                               \
                for (int64_t i = 0; i < l->n; i++)                                             \
                    statement(a[i * as], b[i * bs]);                                           \
            return true;                                                                       \
        }                                                                                      \
        for (int64_t i = 0; i < l->n; i++) {                                                   \
            if (!is_inside(l, index + i * is))                                                 \
                return false;                                                                  \
            statement(a[i * as], to[i * bs + index[i * is] * l->step]);                        \
        }                                                                                      \
        return true;                                                                           \
    }
#define MOVE_TO(a, b) (a) = (b)
#define ADD_TO(a, b)  (b) += (a)
LOOKUP_ROW(gather_8, uint8_t, MOVE_TO)
LOOKUP_ROW(gather_16, uint16_t, MOVE_TO)
LOOKUP_ROW(gather_32, uint32_t, MOVE_TO)
LOOKUP_ROW(gather_64, uint64_t, MOVE_TO)
LOOKUP_ROW(add_f32, float, ADD_TO)
LOOKUP_ROW(add_i64, int64_t, ADD_TO)

typedef bool lookup_row(const lookup *l, const walk *w, const int64_t *off);

static void walk_lookup(walk *w, lookup l, lookup_row *row)
{
    int64_t at[CHOIR__MAX_DIMS] = {0}, off[WALK_OPERANDS] = {0};
    if (!walk_simplify(w))
        return;
    l.n = w->shape[w->ndim - 1];
    while (row(&l, w, off) && walk_next(w, at, off))
        ;
}

void KERNEL(gather)(const choir__k_gather *k)
{
    static lookup_row *const rows[] = {
        [1] = gather_8, [2] = gather_16, [4] = gather_32, [8] = gather_64};
    walk w = walk_of(k->shape, k->ndim, 3, (const choir__strided *[]){&k->y, &k->index, &k->x});
    w.stride[k->dim][2] = 0; /* the index says where along dim */
    lookup l = {.size = k->size,
        .step = k->x.stride[k->dim],
        .what = k->lookup,
        .whole_index = k->index.p};
    walk_lookup(&w, l, rows[choir_dtype_size(k->dtype)]);
}

void KERNEL(scatter_add)(const choir__k_scatter_add *k)
{
    if (k->dtype != CHOIR_F32 && k->dtype != CHOIR_I64) {
        CHOIR__BY_REFERENCE(scatter_add, k);
        return;
    }
    walk w = walk_of(k->shape, k->ndim, 3, (const choir__strided *[]){&k->x, &k->index, &k->y});
    w.stride[k->dim][2] = 0;
    lookup l = {.size = k->size,
        .step = k->y.stride[k->dim],
        .what = k->lookup,
        .whole_index = k->index.p};
    walk_lookup(&w, l, k->dtype == CHOIR_I64 ? add_i64 : add_f32);
}
