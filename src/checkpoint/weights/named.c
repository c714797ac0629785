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

/* Runs of a part's entries: from the file's tensor to host memory. */
typedef struct runs {
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
    const char *data = r->stored->data;
    choir__numbers_convert(r->host + (size_t)to * choir_dtype_size(r->dtype), r->dtype,
        data + (size_t)from * choir_dtype_size(r->stored->dtype), r->stored->dtype, (size_t)n);
}

/* Checks the numbers that the tensor takes. Of a part the others are not read, unless one of
 * its own is wrong: then the message says where it is in the whole. */
static choir_status check_finite(
    const choir_tensor *t, const char *path, const choir__st_tensor *s)
{
    choir__checked what = {path, s->name, s->shape, s->dtype, false};
    runs r = {.stored = s, .what = &what};
    bool part = t->param && t->param->part_boxes;
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
    const size_t count = bytes_of(t) / choir_dtype_size(dtype_of(t)),
                 row = count / (size_t)t->shape.dim[0], size = choir_dtype_size(stored->dtype),
                 most = list->host_bytes / (row * choir_dtype_size(dtype_of(t)));
    const char *from = stored->data;
    choir_status status = CHOIR_OK;
    for (int64_t r = 0, n; r < t->shape.dim[0] && status == CHOIR_OK; r += n) {
        n = choir__min((int64_t)most, t->shape.dim[0] - r);
        const size_t some = (size_t)n * row;
        choir__numbers_convert(list->host, dtype_of(t), from, stored->dtype, some);
        choir_tensor rows = choir__rows_view(t, r, n);
        status = t->held ? choir__held_write_rows(t, r, n, list->host)
                         : choir_write(&rows, list->host, some * choir_dtype_size(t->dtype));
        if (list->files)
            choir__stored_forget(list->files, from, some * size);
        from += some * size;
    }
    return status;
}

static choir_status restore_whole(
    const choir__named_list *list, choir_tensor *t, const choir__st_tensor *stored)
{
    if (t->param && t->param->part_boxes)
        visit_part(t, convert_run,
            &(runs){.stored = stored, .host = list->host, .dtype = dtype_of(t)});
    else if (t->dtype != CHOIR_I64)
        choir__numbers_convert(list->host, dtype_of(t), stored->data, stored->dtype,
            bytes_of(t) / choir_dtype_size(dtype_of(t)));
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
