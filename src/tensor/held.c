/* Shapes and memory of held weights, and their values: encoded from the host, read back, and
 * expanded while an op runs. Rows are encoded and expanded a slab at a time, so that the
 * weight in f32 never has to fit into memory. */
#include "tensor/held.h"

#include <choir/dry.h>

#include <stdlib.h>

#include "tensor/launch.h"

/* LEAST: values from which on another core gains. MOST: values that are encoded at a time. */
enum { WORD = 4, LEAST = 16 * 1024, MOST = 1 << 20 };

int64_t choir__held_words(choir__quant type, int64_t cols)
{
    return cols % choir__quant_types[type].values
               ? 0
               : (choir__quant_bytes(type, cols) + WORD - 1) / WORD;
}

choir_shape choir__values_shape(const choir_tensor *t)
{
    choir_shape shape = t->shape;
    if (t->held)
        shape.dim[1] = t->held->cols;
    return shape;
}

void choir__held_box(const choir_tensor *t, int64_t *from, int64_t *at, int64_t *size)
{
    const choir__quant_type *type = &choir__quant_types[t->held->type];
    int64_t *ends[] = {from, at, size};
    for (int i = 0; i < 3; i++) /* words behind a whole row's last block are not values */
        ends[i][1] = ends[i][1] * WORD / type->bytes * type->values;
}

void choir__hold_as(choir_tensor *t, choir__quant type, int64_t cols)
{
    struct choir__held *held = choir__arena_get(&t->scope->arena, sizeof *held);
    *held = (struct choir__held){type, cols};
    t->held = held;
    t->dtype = CHOIR_I32;
    t->shape.dim[1] = choir__held_words(type, cols);
    t->count = choir__shape_count(t->shape);
    choir__set_row_major(t);
}

static choir__quant type_of(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 ? CHOIR__BF16 : dtype == CHOIR_F16 ? CHOIR__F16 : CHOIR__F32;
}

/* Makes t's words elements of a smaller dtype, cols in each row. */
static void see_as(choir_tensor *t, choir_dtype dtype, int64_t cols)
{
    const int64_t ratio = WORD / (int64_t)choir_dtype_size(dtype),
                  row = t->shape.dim[1] * ratio;
    t->held = NULL;
    t->dtype = dtype;
    t->offset *= ratio;
    t->shape.dim[1] = cols;
    t->count = choir__shape_count(t->shape);
    choir__set_rows(t, row);
}

/* --- on the host --- */

static choir_status words_of(int64_t count, size_t *bytes, uint8_t **words)
{
    *bytes = (size_t)count * WORD;
    *words = calloc(*bytes + 1, 1);
    return *words ? CHOIR_OK
                  : choir__error(CHOIR_ERR_MEMORY, "no host memory for %zu bytes", *bytes);
}

/* Rows on their way to words. */
typedef struct encoding {
    choir__quant type;
    int64_t cols, row_bytes;
    const float *values;
    uint8_t *words;
} encoding;

static void encode_rows(const void *arg, int64_t first, int64_t rows)
{
    const encoding *e = arg;
    for (int64_t r = first; r < first + rows; r++)
        choir__quant_encode(
            e->type, e->words + r * e->row_bytes, e->values + r * e->cols, e->cols);
}

choir_status choir__held_write_rows(
    choir_tensor *t, int64_t first, int64_t rows, const float *values)
{
    size_t bytes;
    encoding e = {t->held->type, t->held->cols, t->shape.dim[1] * WORD, values, NULL};
    if (!choir__quant_is_written(e.type))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "blocks of type %s are read from files, but not written: other weights cannot be "
            "held in them",
            choir__quant_types[e.type].name);
    choir_status status = words_of(rows * t->shape.dim[1], &bytes, &e.words);
    if (status == CHOIR_OK) {
        choir_tensor part = choir__rows_view(t, first, rows);
        choir__device_divide(choir__device_of(t),
            &(choir__device_work){rows, LEAST / choir__max(1, e.cols) + 1, encode_rows, &e});
        status = choir_write(&part, e.words, bytes);
    }
    free(e.words);
    return status;
}

choir_status choir__held_clear_rows(choir_tensor *t, int64_t first, int64_t rows)
{
    size_t bytes;
    uint8_t *words = NULL;
    choir_status status = words_of(rows * t->shape.dim[1], &bytes, &words);
    if (status == CHOIR_OK) {
        choir_tensor part = choir__rows_view(t, first, rows);
        status = choir_write(&part, words, bytes);
    }
    free(words);
    return status;
}

choir_status choir__held_round_rows(
    choir_tensor *t, int64_t first, choir_tensor *w, int64_t rows, float *room)
{
    if (choir_device_is_dry(choir__device_of(w))) /* a large model would take minutes */
        return CHOIR_OK;
    choir_status status = choir_read(w, room, (size_t)w->count * sizeof *room);
    return status == CHOIR_OK ? choir__held_write_rows(t, first, rows, room) : status;
}

choir_status choir__held_no_room(int64_t values)
{
    return choir__error(CHOIR_ERR_MEMORY, "no host memory for %lld numbers", (long long)values);
}

choir_status choir__held_write(choir_tensor *t, const float *values)
{
    const int64_t cols = t->held->cols, most = MOST / choir__max(1, cols) + 1;
    choir_status status = CHOIR_OK;
    for (int64_t r = 0; r < t->shape.dim[0] && status == CHOIR_OK; r += most)
        status = choir__held_write_rows(
            t, r, choir__min(most, t->shape.dim[0] - r), values + r * cols);
    return status;
}

choir_status choir__held_read(choir_tensor *t, float *values)
{
    size_t bytes;
    uint8_t *words;
    choir_status status = words_of(t->count, &bytes, &words);
    const int64_t row = t->shape.dim[1] * WORD, cols = t->held->cols;
    if (status == CHOIR_OK)
        status = choir_read(t, words, bytes);
    for (int64_t r = 0; r < t->shape.dim[0] && status == CHOIR_OK; r++)
        choir__quant_decode(t->held->type, values + r * cols, words + r * row, 0, cols);
    free(words);
    return status;
}

void choir__held_as_stored(choir_tensor *seen, const choir_tensor *t)
{
    *seen = *t;
    if (!t->held)
        return;
    if (t->held->type == CHOIR__BF16 || t->held->type == CHOIR__F16)
        see_as(seen, t->held->type == CHOIR__BF16 ? CHOIR_BF16 : CHOIR_F16, t->held->cols);
    else
        see_as(seen, CHOIR_U8, t->shape.dim[1] * WORD);
}

/* --- while an op runs --- */

/* Expands rows: all of them if ids is NULL. */
static void expand(choir_tensor *y, const choir_tensor *w, choir__k_expand args)
{
    args.x = choir__data(w);
    args.y = choir__data(y);
    args.rows = w->shape.dim[0];
    args.cols = w->held->cols;
    args.row_bytes = w->shape.dim[1] * WORD;
    args.type = w->held->type;
    args.dtype = y->dtype;
    choir__launch(choir__device_of(y), y->dtype, expand, &args);
}

/* Returns the values in memory of their own, or where they are. */
static choir_tensor *values_of(choir_scope *scope, choir_tensor *w, choir_dtype dtype)
{
    if (w->held->type == type_of(dtype)) {
        choir_tensor *seen = choir__tensor_alias(scope, w);
        see_as(seen, dtype, w->held->cols);
        return seen;
    }
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(w), dtype, choir__values_shape(w));
    if (!y->poisoned)
        expand(y, w, (choir__k_expand){.n = w->shape.dim[0]});
    return y;
}

choir_tensor *choir__held_operand(
    choir_scope *scope, choir__k_matmul *product, choir_tensor *w, bool turned)
{
    choir_tensor *values = w;
    bool direct = w->held && w->held->type != type_of(product->dtype) &&
                  !choir__is_cut(product->cut) &&
                  choir__device_reads_blocks(choir__device_of(w), product->dtype);
    if (w->held && !direct)
        values = values_of(scope, w, product->dtype);
    if (values->poisoned)
        return NULL;
    int64_t row = direct ? w->held->cols : choir__row_of(values);
    product->b = choir__data(values);
    product->b_row = turned ? 1 : row;
    product->b_col = turned ? row : 1;
    if (direct) {
        product->b_held = w->held->type;
        product->b_bytes = w->shape.dim[1] * WORD;
    }
    return values;
}

void choir__held_done(choir_tensor *operand, const choir_tensor *w)
{
    if (operand != w && operand->storage)
        choir__tensor_release(operand);
}

void choir__held_rows(choir_tensor *y, const choir_tensor *table, const choir_tensor *ids,
    int64_t first, int64_t whole)
{
    expand(y, table,
        (choir__k_expand){
            .ids = choir__data(ids), .n = ids->count, .first = first, .whole = whole});
}
