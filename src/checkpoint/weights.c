/* Weights to files and back: check everything, then copy everything. */
#include "checkpoint/weights.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file.h"
#include "tensor/tensor.h"

/* --- the list --- */

void choir__named_add(const char *name, choir_tensor *t, void *arg)
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

void choir__named_sort(choir__named_list *list)
{
    if (list->count)
        qsort(list->items, (size_t)list->count, sizeof *list->items, by_name);
}

choir_status choir__named_module(choir__named_list *list, choir_module *module)
{
    choir_module_visit(module, true, choir__named_add, list);
    choir__named_sort(list);
    return choir_scope_status(module->run);
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

/* Memory whose size the user's model decides may be refused. */
static choir_status get_host(choir__named_list *list, size_t bytes, const char *path)
{
    free(list->host);
    list->host = malloc(bytes + 1);
    if (!list->host)
        return choir__error(CHOIR_ERR_MEMORY, "%s: no host memory for %zu bytes", path, bytes);
    return CHOIR_OK;
}

/* --- out --- */

static choir_status check_finite(
    const char *path, const choir__st_tensor *t, choir_status code);

choir_status choir__named_save(choir__named_list *list, const char *path, bool finite)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < list->count; i++)
        total += (bytes_of(list->items[i].tensor) + 7) & ~(size_t)7;
    choir_status status = get_host(list, total, path);
    if (status != CHOIR_OK)
        return status;
    choir__st_tensor *out = choir__calloc((size_t)list->count + 1, sizeof *out);
    for (int i = 0; i < list->count && status == CHOIR_OK; i++) {
        choir_tensor *t = list->items[i].tensor;
        char *data = (char *)list->host + at;
        out[i] = (choir__st_tensor){list->items[i].name, t->dtype, t->shape, data, bytes_of(t)};
        at += (bytes_of(t) + 7) & ~(size_t)7;
        status = choir_read(t, data, bytes_of(t));
        if (status == CHOIR_OK && finite && choir__is_float(t->dtype))
            status = check_finite(path, &out[i], CHOIR_ERR_NONFINITE);
    }
    if (status == CHOIR_OK)
        status = choir__st_write(path, out, list->count, NULL);
    free(out);
    return status;
}

choir_status choir_save(choir_module *module, const char *path)
{
    choir__named_list list = {0};
    choir_status status = choir__named_module(&list, module);
    if (status == CHOIR_OK)
        status = choir__named_save(&list, path, false);
    choir__named_free(&list);
    return status;
}

/* As f32, counters included. */
static void hash(crypto_hash_sha256_state *state, const choir_tensor *t, const void *data)
{
    if (t->dtype != CHOIR_I64) {
        crypto_hash_sha256_update(state, data, bytes_of(t));
        return;
    }
    for (int64_t i = 0; i < t->count; i++) {
        float value = (float)((const int64_t *)data)[i];
        crypto_hash_sha256_update(state, (const unsigned char *)&value, sizeof value);
    }
}

choir_status choir__weights_sha256(choir_module *module, char hex[65])
{
    choir__named_list list = {0};
    crypto_hash_sha256_state state;
    unsigned char digest[crypto_hash_sha256_BYTES];
    choir_status status = choir__named_module(&list, module);
    crypto_hash_sha256_init(&state);
    for (int i = 0; i < list.count && status == CHOIR_OK; i++) {
        choir_tensor *t = list.items[i].tensor;
        status = get_host(&list, bytes_of(t), list.items[i].name);
        if (status == CHOIR_OK)
            status = choir_read(t, list.host, bytes_of(t));
        if (status == CHOIR_OK)
            hash(&state, t, list.host);
    }
    crypto_hash_sha256_final(&state, digest);
    if (status == CHOIR_OK)
        choir__hex(digest, hex);
    choir__named_free(&list);
    return status;
}

/* --- in --- */

/* out[n] = elements first, first + 1, ... of t as f32. The file may hold them at any
 * address. */
static void widen(float *out, const choir__st_tensor *t, size_t first, size_t n)
{
    const char *from = (const char *)t->data + first * choir_dtype_size(t->dtype);
    if (t->dtype == CHOIR_F32) {
        memcpy(out, from, n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = 0;
        double wide = 0;
        if (t->dtype == CHOIR_F64)
            memcpy(&wide, from + i * sizeof wide, sizeof wide);
        else
            memcpy(&half, from + i * sizeof half, sizeof half);
        out[i] = t->dtype == CHOIR_F64    ? (float)wide
                 : t->dtype == CHOIR_BF16 ? choir__f32_from_bf16(half)
                                          : choir__f32_from_f16(half);
    }
}

static choir_status check_finite(const char *path, const choir__st_tensor *t, choir_status code)
{
    float block[1024];
    size_t count = t->bytes / choir_dtype_size(t->dtype), n;
    for (size_t first = 0; first < count; first += n) {
        n = count - first < CHOIR_COUNT(block) ? count - first : CHOIR_COUNT(block);
        widen(block, t, first, n);
        for (size_t i = 0; i < n; i++)
            if (!isfinite(block[i]))
                return choir__error(code,
                    "%s: tensor '%.200s' %s holds %g, as f32, at index %zu; "
                    "weights must be finite",
                    path, t->name, choir__shape_text(t->shape), (double)block[i], first + i);
    }
    return CHOIR_OK;
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
    if (counter ? s->dtype != CHOIR_I64 : !choir__is_float(s->dtype) || t->dtype != CHOIR_F32)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: tensor '%.200s' is %s, which cannot become %s", path, s->name,
            choir_dtype_name(s->dtype), choir_dtype_name(t->dtype));
    item->stored = s;
    return finite && !counter ? check_finite(path, s, CHOIR_ERR_FORMAT) : CHOIR_OK;
}

choir_status choir__named_ready(choir__named_list *list, const char *path)
{
    size_t largest = 0;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = bytes_of(list->items[i].tensor);
        largest = bytes > largest ? bytes : largest;
    }
    return get_host(list, largest, path); /* now: nothing may fail once copying has begun */
}

static choir_status match(choir__named *item, const choir__st_file *file, const char *path,
    const char *what, bool finite)
{
    const choir__st_tensor *s = choir__st_find(file, item->name);
    if (!s && item->tensor->dtype == CHOIR_I64)
        return CHOIR_OK; /* a counter, which files of old have not: it starts at 0 */
    return s ? choir__named_accept(item, s, path, what, finite)
             : choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' %s of the %s is missing",
                   path, item->name, choir__shape_text(item->tensor->shape), what);
}

choir_status choir__named_match(choir__named_list *list, const choir__st_file *file,
    const char *path, const char *what, bool finite)
{
    for (int i = 0; i < list->count; i++) {
        choir_status status = match(&list->items[i], file, path, what, finite);
        if (status != CHOIR_OK)
            return status;
    }
    for (int i = 0; i < choir__st_count(file); i++) {
        choir__named key = {choir__st_get(file, i)->name, NULL, NULL};
        if (!list->count ||
            !bsearch(&key, list->items, (size_t)list->count, sizeof key, by_name))
            return choir__error(CHOIR_ERR_FORMAT, "%s: tensor '%.200s' %s is none of the %s's",
                path, key.name, choir__shape_text(choir__st_get(file, i)->shape), what);
    }
    return choir__named_ready(list, path);
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
            widen(list->host, stored, 0, (size_t)t->count);
        else if (stored)
            memcpy(list->host, stored->data, bytes_of(t));
        else
            memset(list->host, 0, bytes_of(t));
        status = choir_write(t, list->host, bytes_of(t));
    }
    return status;
}

choir_status choir_load(choir_module *module, const char *path)
{
    choir__st_file *file = NULL;
    choir__named_list list = {0};
    choir_status status = choir__named_module(&list, module);
    if (status == CHOIR_OK)
        status = choir__st_open(path, &file);
    if (status == CHOIR_OK)
        status = choir__named_match(&list, file, path, "model", true);
    if (status == CHOIR_OK)
        status = choir__named_restore(&list);
    choir__st_close(file);
    choir__named_free(&list);
    return status;
}
