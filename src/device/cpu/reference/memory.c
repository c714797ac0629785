/* Reference kernels that move values and compute (almost) nothing: fill, copy with a change of
 * type and layout, a few bytes from the host, and table lookups with their gradient. */
#include <string.h>
#include "base/quant/decode.h"
#include "device/cpu/reference/reference.h"
#include "device/queue.h"

void choir__reference_fill(const choir__k_fill *k)
{
    for (int64_t i = 0; i < k->n; i++)
        put(k->y, i, k->dtype, k->value);
}

/* Converts one element. An integer is never converted to another integer through a double, and
 * it is rounded once when converted to a float. */
static void convert(
    void *y, int64_t i, choir_dtype y_dtype, const void *x, int64_t j, choir_dtype x_dtype)
{
    if (!is_integer(x_dtype)) {
        put(y, i, y_dtype, get(x, j, x_dtype));
        return;
    }
    int64_t value = get_integer(x, j, x_dtype);
    if (is_integer(y_dtype))
        put_integer(y, i, y_dtype, value);
    else if (y_dtype == CHOIR_F64)
        put(y, i, y_dtype, (double)value);
    else
        put(y, i, y_dtype, (double)(float)value);
}

void choir__reference_copy(const choir__k_copy *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0};
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        convert(k->y.p, offset_of(&k->y, index, k->ndim), k->y_dtype, k->x.p,
            offset_of(&k->x, index, k->ndim), k->x_dtype);
    } while (next_index(index, k->shape, k->ndim));
}

void choir__reference_store(const choir__k_store *k)
{
    memcpy(k->y, k->data, k->bytes);
}

void choir__reference_embedding(const choir__k_embedding *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        int64_t id = k->ids[i], own = id - (k->whole ? k->first : 0);
        bool here = own >= 0 && own < k->rows;
        if (id < 0 || id >= (k->whole ? k->whole : k->rows)) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "embedding: id %lld at position %lld is outside the table of %lld rows",
                (long long)id, (long long)i, (long long)k->rows);
            return;
        }
        for (int64_t c = 0; c < k->cols; c++)
            put(k->y, i * k->cols + c, k->dtype,
                here ? get(k->table, own * k->cols + c, k->dtype) : 0);
    }
}

void choir__reference_expand(const choir__k_expand *k)
{
    const choir__quant_type *type = &choir__quant_types[k->type];
    int64_t whole = k->whole ? k->whole : k->rows;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t id = k->ids ? k->ids[i] : i, own = id - (k->ids && k->whole ? k->first : 0);
        bool here = !k->ids || (own >= 0 && own < k->rows);
        if (k->ids && (id < 0 || id >= whole)) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "embedding: id %lld at position %lld is outside the table of %lld rows",
                (long long)id, (long long)i, (long long)whole);
            return;
        }
        const uint8_t *row = (const uint8_t *)k->x + (here ? own * k->row_bytes : 0);
        for (int64_t c = 0; c < k->cols; c++)
            put(k->y, i * k->cols + c, k->dtype,
                here ? (double)choir__quant_value(k->type, row + c / type->values * type->bytes,
                           (int)(c % type->values))
                     : 0);
    }
}

/* Returns the sum that leaves first ... first + n - 1 add to element (id, col): the fixed tree
 * over leaves; within a leaf, the rows that name id, in order. */
static double node(
    const choir__k_embedding_backward *k, int64_t first, int64_t n, int64_t id, int64_t col)
{
    if (n > 1) {
        int64_t left = left_leaves(n);
        return node(k, first, left, id, col) + node(k, first + left, n - left, id, col);
    }
    double sum = 0;
    for (int64_t i = 0; i < k->counts[first]; i++)
        if (k->ids[first][i] == id)
            sum += get(k->grads[first], i * k->cols + col, k->dtype);
    return sum;
}

static bool is_named(const choir__k_embedding_backward *k, int64_t id)
{
    for (int64_t leaf = 0; leaf < k->leaves; leaf++)
        for (int64_t i = 0; i < k->counts[leaf]; i++)
            if (k->ids[leaf][i] == id)
                return true;
    return false;
}

void choir__reference_embedding_backward(const choir__k_embedding_backward *k)
{
    for (int64_t row = 0; row < k->rows; row++) {
        int64_t id = k->first + row;
        bool named = id != k->padding && is_named(k, id);
        for (int64_t c = 0; c < k->cols; c++) {
            int64_t i = row * k->cols + c;
            double old = k->accumulate ? get(k->y, i, k->dtype) : 0;
            double sum = named ? node(k, 0, k->leaves, id, c) * (double)k->scale : 0;
            put(k->y, i, k->dtype, old + sum);
        }
    }
}
