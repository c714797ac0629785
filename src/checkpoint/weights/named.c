/* Copying weights from files to the tensors of a module: check everything, then copy
 * everything.
 *
 * A rank may have parts of tensors (tensor parallelism). It reads the runs of the file that are
 * in its boxes, and converts them to where they are in its part:
 *
 *     file, whole    | q0 q1 | k0 k1 | v0 v1 |        rank 1's part    | q1 | k1 | v1 |
 */
#include "checkpoint/weights/named.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/packed.h"
#include "checkpoint/items.h"
#include "nn/module.h"
#include "tensor/held.h"
#include "tensor/scope.h"
#include "tensor/tensor.h"

/* Adds a tensor to a list; has the form of a choir_visit_fn. */
static void add_named(const char *name, choir_tensor *t, void *arg)
{
    choir__named_list *list = arg;
    const choir__param *p = t->param;
    if (list->adapters ? !p || !(p->adapts || p->beside_adapters) : p && p->adapts)
        return;
    CHOIR__GROW(list->items, list->count);
    list->items[list->count++] = (choir__named){choir__strdup(name), t, NULL};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const choir__named *)a)->name, ((const choir__named *)b)->name);
}

static void sort_named(choir__named_list *list)
{
    if (list->count)
        qsort(list->items, (size_t)list->count, sizeof *list->items, by_name);
}

choir_status choir__named_of(choir__named_list *list, choir_module *module)
{
    choir__module_visit_named(module, true, add_named, list);
    sort_named(list);
    return choir__scope_status(module->run);
}

void choir__named_free(choir__named_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i].name);
    free(list->items);
    free(list->host);
    *list = (choir__named_list){0};
}

/* The type and bytes of a tensor's values, whatever holds them. */
static choir_dtype dtype_of(const choir_tensor *t)
{
    return t->held ? CHOIR_F32 : t->dtype;
}

static size_t bytes_of(const choir_tensor *t)
{
    return (size_t)choir__shape_count(choir__values_shape(t)) * choir_dtype_size(dtype_of(t));
}

choir_shape choir__named_whole(const choir_tensor *t)
{
    return t->param && t->param->part_boxes ? choir__param_values(t->param)
                                            : choir__values_shape(t);
}

/* The bytes that hold them. */
static size_t memory_of(const choir_tensor *t)
{
    return (size_t)t->count * choir_dtype_size(t->dtype);
}

/* The user's model determines the size, so the allocation may fail without ending the
 * process. */
static choir_status get_host(choir__named_list *list, size_t bytes, const char *path)
{
    free(list->host);
    list->host_bytes = bytes;
    list->host = malloc(bytes + 1);
    if (!list->host)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", path, bytes);
    return CHOIR_OK;
}

/* --- reading --- */

/* Visits the entries of a rank's part in runs that are contiguous in the file's tensor, too.
 * The function `each` gets a run's length, and where it begins in the part and in the file. */
static void visit_part(const choir_tensor *t, choir__run_fn *each, void *arg)
{
    const choir__param *p = t->param;
    choir__box_region all = choir__box_region_whole(choir__param_values(p));
    const choir__block_of whole = choir__block_of_region(&all);
    for (int b = 0; b < p->part_box_count; b++) {
        choir__box box = p->part_boxes[b];
        if (t->held)
            choir__held_box(t, box.from, box.at, box.size);
        choir__box_region own = choir__box_region_of(&box);
        choir__block_of to = choir__block_of_local(&box, choir__values_shape(t));
        choir__box_region_runs(&own, p->whole.ndim, &to, &whole, each, arg);
    }
}

/* Converts entries [first, first + n) of the file's tensor, in order. */
static void convert(
    void *out, choir_dtype to, const choir__st_tensor *s, int64_t first, int64_t n)
{
    enum { SOME = 1024 };
    float values[SOME];
    char *at = out;
    if (!choir__is_packed(s)) {
        choir__numbers_convert(out, to,
            (const char *)s->data + (size_t)first * choir_dtype_size(s->dtype), s->dtype,
            (size_t)n);
        return;
    }
    for (int64_t some; n > 0; n -= some, first += some) {
        some = choir__min(n, SOME);
        choir__packed_read(s, first, some, values);
        choir__numbers_convert(at, to, values, CHOIR_F32, (size_t)some);
        at += (size_t)some * choir_dtype_size(to);
    }
}

/* Returns whether t is held in the blocks that the file has: they are copied as they are. */
static bool same_blocks(const choir_tensor *t, const choir__st_tensor *s)
{
    return t->held && choir__is_packed(s) && t->held->type == s->blocks;
}

/* Runs of a part's entries: from the file's tensor to host memory. */
typedef struct runs {
    const choir_tensor *tensor;
    const choir__st_tensor *stored;
    const choir__checked *what;
    choir_status status;
    char *host;
    choir_dtype dtype;
} runs;

static void check_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    runs *r = arg;
    const char *data = r->stored->data;
    (void)to;
    if (r->status == CHOIR_OK)
        r->status = choir__check_finite(CHOIR_ERR_FORMAT, r->what,
            data + (size_t)from * choir_dtype_size(r->stored->dtype), (size_t)n);
}

static void convert_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    const runs *r = arg;
    convert(r->host + (size_t)to * choir_dtype_size(r->dtype), r->dtype, r->stored, from, n);
}

/* Copies the blocks of a run, whose ends in rows are ends of blocks. Rows are whole words. */
static void copy_run(void *arg, int64_t to, int64_t from, int64_t n)
{
    const runs *r = arg;
    const choir__quant type = r->stored->blocks;
    const int64_t cols = choir__packed_cols(r->stored), own = r->tensor->held->cols,
                  words = r->tensor->shape.dim[1];
    for (int64_t some; n > 0; n -= some, to += some, from += some) {
        some = choir__min(n, choir__min(cols - from % cols, own - to % own));
        memcpy(r->host + to / own * words * 4 + choir__quant_bytes(type, to % own),
            choir__packed_row(r->stored, from / cols) + choir__quant_bytes(type, from % cols),
            (size_t)choir__quant_bytes(type, some));
    }
}

static choir_status check_packed(const char *path, const choir__st_tensor *s)
{
    float value;
    const int64_t at = choir__packed_nonfinite(s, &value);
    return at < 0
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: tensor '%.200s' %s holds %g at index %lld; weights must be finite",
                     path, s->name, choir__shape_text(s->shape), (double)value, (long long)at);
}

/* Checks the numbers that the tensor takes. Of a part the others are not read, unless one of
 * its own is wrong: then the message says where it is in the whole. */
static choir_status check_finite(
    const choir_tensor *t, const char *path, const choir__st_tensor *s)
{
    choir__checked what = {path, s->name, s->shape, s->dtype, false};
    runs r = {.stored = s, .what = &what};
    bool part = t->param && t->param->part_boxes;
    if (choir__is_packed(s))
        return check_packed(path, s);
    if (part)
        visit_part(t, check_run, &r);
    return part && r.status == CHOIR_OK ? CHOIR_OK
                                        : choir__check_finite(CHOIR_ERR_FORMAT, &what, s->data,
                                              s->bytes / choir_dtype_size(s->dtype));
}

static bool is_transposed(choir_shape a, choir_shape b)
{
    return a.ndim == 2 && b.ndim == 2 && a.dim[0] == b.dim[1] && a.dim[1] == b.dim[0];
}

choir_status choir__named_accept(choir__named *item, const choir__st_tensor *s,
    const char *path, const char *what, bool finite)
{
    const choir_tensor *t = item->tensor;
    bool counter = t->dtype == CHOIR_I64;
    choir_shape whole = choir__named_whole(t);
    if (!choir__same_shape(s->shape, whole))
        return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' is %s, but the %s's is %s%s",
            path, s->name, choir__shape_text(s->shape), what, choir__shape_text(whole),
            is_transposed(s->shape, whole) ? "; its transpose would fit" : "");
    if (!choir__convertible(dtype_of(t), s->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' is %s, which cannot become %s", path, s->name,
            choir_dtype_name(s->dtype), choir_dtype_name(t->dtype));
    item->stored = s;
    return finite && !counter ? check_finite(t, path, s) : CHOIR_OK;
}

enum { PIECE = 4 << 20 }; /* bytes that are converted at a time, or a row */

/* Whole tensors of rows are copied in pieces. */
static bool has_rows(const choir_tensor *t)
{
    return t->shape.ndim > 0 && t->count && t->dtype != CHOIR_I64 &&
           !(t->param && t->param->part_boxes);
}

static size_t room_for(const choir_tensor *t)
{
    const size_t bytes = bytes_of(t), row = bytes / (size_t)choir__max(1, t->shape.dim[0]);
    return !has_rows(t) || bytes <= PIECE ? bytes : row > PIECE ? row : PIECE;
}

choir_status choir__named_make_ready(choir__named_list *list, const char *path)
{
    size_t largest = 0;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = room_for(list->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    return get_host(list, largest, path); /* now: copying must not fail */
}

static choir_status restore_rows(
    const choir__named_list *list, choir_tensor *t, const choir__st_tensor *stored)
{
    const int64_t all = t->shape.dim[0],
                  row = (int64_t)(bytes_of(t) / choir_dtype_size(dtype_of(t))) / all,
                  most = (int64_t)list->host_bytes /
                         (row * (int64_t)choir_dtype_size(dtype_of(t)));
    const size_t stored_row = stored->bytes / (size_t)all;
    choir_status status = CHOIR_OK;
    for (int64_t r = 0, n; r < all && status == CHOIR_OK; r += n) {
        n = choir__min(most, all - r);
        choir_tensor rows = choir__rows_view(t, r, n);
        if (same_blocks(t, stored)) {
            memset(list->host, 0, memory_of(&rows));
            copy_run(&(runs){.tensor = t, .stored = stored, .host = list->host}, 0, r * row,
                n * row);
            status = choir_write(&rows, list->host, memory_of(&rows));
        } else {
            convert(list->host, dtype_of(t), stored, r * row, n * row);
            status = t->held ? choir__held_write_rows(t, r, n, list->host)
                             : choir_write(&rows, list->host, memory_of(&rows));
        }
        if (list->files && !stored->heads)
            choir__stored_forget(list->files,
                (const char *)stored->data + (size_t)r * stored_row, (size_t)n * stored_row);
    }
    if (list->files && stored->heads)
        choir__stored_forget(list->files, stored->data, stored->bytes);
    return status;
}

static choir_status restore_whole(
    const choir__named_list *list, choir_tensor *t, const choir__st_tensor *stored)
{
    runs r = {.tensor = t, .stored = stored, .host = list->host, .dtype = dtype_of(t)};
    if (t->param && t->param->part_boxes && same_blocks(t, stored)) {
        memset(list->host, 0, memory_of(t));
        visit_part(t, copy_run, &r);
        return choir_write(t, list->host, memory_of(t));
    }
    if (t->param && t->param->part_boxes)
        visit_part(t, convert_run, &r);
    else if (t->dtype != CHOIR_I64)
        convert(list->host, dtype_of(t), stored, 0,
            (int64_t)(bytes_of(t) / choir_dtype_size(dtype_of(t))));
    else if (stored)
        memcpy(list->host, stored->data, bytes_of(t));
    else
        memset(list->host, 0, bytes_of(t));
    return t->held ? choir__held_write(t, list->host) : choir_write(t, list->host, bytes_of(t));
}

choir_status choir__named_restore(choir__named_list *list)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < list->count && status == CHOIR_OK; i++) {
        choir_tensor *t = list->items[i].tensor;
        const choir__st_tensor *stored = list->items[i].stored;
        if (!stored && t->dtype != CHOIR_I64)
            continue;
        if (t->param && !t->param->initialised && !choir__param_claim(t->param))
            return choir__scope_status(t->scope);
        status = (has_rows(t) ? restore_rows : restore_whole)(list, t, stored);
    }
    return status;
}
