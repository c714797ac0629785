/* Copying weights to and from files: check everything, then copy everything. */
#include "checkpoint/weights/published.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/numbers.h"
#include "tensor/scope.h"

/* --- the list --- */

/* Adds a tensor to a list; has the form of a choir_visit_fn. */
static void add_named(const char *name, choir_tensor *t, void *arg)
{
    choir__named_list *list = arg;
    size_t bytes = (size_t)(list->count + 1) * sizeof *list->items;
    list->items = choir__realloc(list->items, bytes);
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

choir_status choir__named_module(choir__named_list *list, choir_module *module)
{
    choir_module_visit(module, true, add_named, list);
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

static size_t bytes_of(const choir_tensor *t)
{
    return (size_t)t->count * choir_dtype_size(t->dtype);
}

/* The user's model determines the size, so the allocation may fail without ending the
 * process. */
static choir_status get_host(choir__named_list *list, size_t bytes, const char *path)
{
    free(list->host);
    list->host = malloc(bytes + 1);
    if (!list->host)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", path, bytes);
    return CHOIR_OK;
}

/* --- reading --- */

static choir_status check_finite(const char *path, const choir__st_tensor *t)
{
    choir__checked what = {path, t->name, t->shape, t->dtype, false};
    return choir__check_finite(
        CHOIR_ERR_FORMAT, &what, t->data, t->bytes / choir_dtype_size(t->dtype));
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
    if (!choir__same_shape(s->shape, t->shape))
        return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' is %s, but the %s's is %s%s",
            path, s->name, choir__shape_text(s->shape), what, choir__shape_text(t->shape),
            is_transposed(s->shape, t->shape) ? "; its transpose would fit" : "");
    if (!choir__convertible(t->dtype, s->dtype))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' is %s, which cannot become %s", path, s->name,
            choir_dtype_name(s->dtype), choir_dtype_name(t->dtype));
    item->stored = s;
    return finite && !counter ? check_finite(path, s) : CHOIR_OK;
}

choir_status choir__named_ready(choir__named_list *list, const char *path)
{
    size_t largest = 0;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = bytes_of(list->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    return get_host(list, largest, path); /* now: copying must not fail */
}

choir_status choir__named_restore(choir__named_list *list)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < list->count && status == CHOIR_OK; i++) {
        choir_tensor *t = list->items[i].tensor;
        const choir__st_tensor *stored = list->items[i].stored;
        if (!stored && t->dtype != CHOIR_I64)
            continue;
        if (t->dtype != CHOIR_I64)
            choir__numbers_convert(
                list->host, t->dtype, stored->data, stored->dtype, (size_t)t->count);
        else if (stored)
            memcpy(list->host, stored->data, bytes_of(t));
        else
            memset(list->host, 0, bytes_of(t));
        status = choir_write(t, list->host, bytes_of(t));
    }
    return status;
}
