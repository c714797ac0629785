/* Writing safetensors: tensors by size of element, largest first, then by name, so that every
 * tensor is aligned and equal tensors give equal files. */
#include "checkpoint/format/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/format/file.h"
#include "tensor/tensor.h"

enum { LENGTH_BYTES = 8, ALIGNMENT = 8 };

static const char *stored_name(choir_dtype dtype)
{
    switch (dtype) {
#define X(id, text, bytes, safetensors)                                                        \
    case CHOIR_##id: return safetensors;
        CHOIR_DTYPE_LIST(X)
#undef X
    case CHOIR_DTYPE_COUNT: break;
    }
    return NULL;
}

static int by_size_then_name(const void *a, const void *b)
{
    const choir__st_tensor *x = *(choir__st_tensor *const *)a,
                           *y = *(choir__st_tensor *const *)b;
    size_t p = choir_dtype_size(x->dtype), q = choir_dtype_size(y->dtype);
    if (p != q)
        return p > q ? -1 : 1;
    return strcmp(x->name, y->name);
}

static const choir__st_tensor **sorted(const choir__st_tensor *tensors, int count)
{
    const choir__st_tensor **order = choir__calloc((size_t)count + 1, sizeof *order);
    for (int i = 0; i < count; i++)
        order[i] = &tensors[i];
    if (count)
        qsort(order, (size_t)count, sizeof *order, by_size_then_name);
    return order;
}

void choir__st_order(const choir__st_tensor *tensors, int count, int *order)
{
    const choir__st_tensor **all = sorted(tensors, count);
    for (int i = 0; i < count; i++)
        order[i] = (int)(all[i] - tensors);
    free(all);
}

static json_t *metadata_json(const char *const *metadata)
{
    json_t *object = json_pack("{s:s}", "format", "pt"); /* required by transformers */
    for (; metadata && metadata[0]; metadata += 2)
        json_object_set_new(object, metadata[0], json_string(metadata[1]));
    return object;
}

static choir_status add_tensor(
    json_t *header, const char *path, const choir__st_tensor *t, size_t *offset)
{
    const char *dtype = stored_name(t->dtype);
    size_t bytes = (size_t)choir__shape_count(t->shape) * choir_dtype_size(t->dtype);
    if (!dtype || bytes != t->bytes)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: tensor '%.200s', %s %s, has not %zu bytes",
            path, t->name, choir_dtype_name(t->dtype), choir__shape_text(t->shape), t->bytes);
    if (json_object_get(header, t->name))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "%s: two tensors are named '%.200s'", path, t->name);
    json_t *shape = json_array();
    for (int d = 0; d < t->shape.ndim; d++)
        json_array_append_new(shape, json_integer(t->shape.dim[d]));
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", dtype, "shape", shape,
        "data_offsets", (json_int_t)*offset, (json_int_t)(*offset + bytes));
    *offset += bytes;
    if (json_object_set_new(header, t->name, entry) != 0 || !*t->name)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: '%.200s' cannot name a tensor: names are UTF-8 and not empty", path, t->name);
    return CHOIR_OK;
}

/* Builds the header's text, padded; the caller frees it. */
static choir_status make_header(const char *path, const choir__st_tensor **order, int count,
    const char *const *metadata, char **text, size_t *bytes)
{
    json_t *header = json_object();
    size_t offset = 0;
    choir_status status = CHOIR_OK;
    json_object_set_new(header, "__metadata__", metadata_json(metadata));
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = add_tensor(header, path, order[i], &offset);
    char *json = status == CHOIR_OK ? json_dumps(header, JSON_COMPACT) : NULL;
    if (json) {
        size_t length = strlen(json);
        *bytes = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        *text = memset(choir__alloc(*bytes), ' ', *bytes);
        memcpy(*text, json, length);
    }
    free(json);
    json_decref(header);
    return status;
}

/* --- a file that is being written --- */

struct choir__st_out {
    choir__draft draft;
    const choir__st_tensor *tensors, **order; /* (count) as the caller lists them; as stored */
    int count, next;                          /* order[next] is written next */
    int64_t bytes, written;                   /* bytes of the tensors */
};

static choir_status write_header(choir__st_out *out, const char *header, size_t header_bytes)
{
    unsigned char length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)((uint64_t)header_bytes >> (8 * i));
    choir_status status = choir__draft_write(&out->draft, length, sizeof length);
    return status == CHOIR_OK ? choir__draft_write(&out->draft, header, header_bytes) : status;
}

choir_status choir__st_out_open(choir__st_out **out, const char *path,
    const choir__st_tensor *tensors, int count, const char *const *metadata)
{
    char *header = NULL;
    size_t header_bytes = 0;
    choir__st_out *o = choir__calloc(1, sizeof *o);
    *o = (choir__st_out){.draft.fd = -1, .tensors = tensors, .count = count};
    o->order = sorted(tensors, count);
    for (int i = 0; i < count; i++)
        o->bytes += (int64_t)tensors[i].bytes;
    choir_status status = make_header(path, o->order, count, metadata, &header, &header_bytes);
    if (status == CHOIR_OK)
        status = choir__draft_open(&o->draft, path);
    if (status == CHOIR_OK)
        status = write_header(o, header, header_bytes);
    free(header);
    if (status == CHOIR_OK)
        *out = o;
    else
        choir__st_out_close(o, status, NULL);
    return status;
}

int choir__st_out_next(const choir__st_out *out)
{
    return out->next < out->count ? (int)(out->order[out->next] - out->tensors) : -1;
}

double choir__st_out_progress(const choir__st_out *out)
{
    return out->bytes ? (double)out->written / (double)out->bytes : 0;
}

choir_status choir__st_out_put(choir__st_out *out, const void *data)
{
    const choir__st_tensor *t = out->order[out->next++];
    out->written += (int64_t)t->bytes;
    return choir__draft_write(&out->draft, data, t->bytes);
}

choir_status choir__st_out_close(choir__st_out *out, choir_status status, choir__digest *digest)
{
    status = choir__draft_close(&out->draft, status, digest);
    free(out->order);
    free(out);
    return status;
}

choir_status choir__st_stream(const char *path, const choir__st_tensor *tensors, int count,
    const char *const *metadata, choir__st_source *source, void *arg, choir__digest *digest)
{
    choir__st_out *out;
    const void *data;
    choir_status status = choir__st_out_open(&out, path, tensors, count, metadata);
    if (status != CHOIR_OK)
        return status;
    for (int i; status == CHOIR_OK && (i = choir__st_out_next(out)) >= 0;) {
        status = source(arg, i, &data);
        if (status == CHOIR_OK)
            status = choir__st_out_put(out, data);
    }
    return choir__st_out_close(out, status, digest);
}
