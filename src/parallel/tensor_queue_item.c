/* Tensors in shared memory, and their description in a message. */
#include "parallel/tensor_queue.h"

#include <string.h>
#include <unistd.h>

bool choir_tensor_is_shared(const choir_tensor *t)
{
    return t->storage && t->storage->mapping;
}

static choir_status check(const choir_tensor *t, const char *what)
{
    if (t->poisoned)
        return choir_scope_status(t->scope);
    if (!t->storage)
        return choir__error(CHOIR_ERR_SCOPE, "%s: backward has freed the tensor", what);
    if (strcmp(choir__device_of(t)->kind, "cpu"))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: a tensor on %s; processes share the memory of CPUs alone", what,
            choir_device_name(choir__device_of(t)));
    return CHOIR_OK;
}

static choir__mapping *new_mapping(size_t bytes, const char *what)
{
    char why[200];
    choir__mapping *m = choir__mapping_new(bytes ? bytes : 1, why);
    if (!m)
        choir__error(CHOIR_ERR_MEMORY, "%s: %s", what, why);
    return m;
}

/* The handles of t's scope that look at t's memory; given storage, they look at that from now
 * on.
 */
static int views_of(choir_tensor *t, choir__storage *storage)
{
    const choir__storage *old = t->storage;
    int count = 0;
    for (choir_tensor *v = t->scope->tensors; v; v = v->next)
        if (v->storage == old) {
            count++;
            if (storage)
                v->storage = choir__storage_ref(storage);
        }
    return count;
}

static choir_status check_movable(choir_tensor *t)
{
    const char *why = NULL;
    if (t->param)
        why = "a parameter is shared by choir_module_share_memory";
    else if (t->producer)
        why = "a backward will read the tensor";
    else if (t->storage->refs != views_of(t, NULL))
        why = "another scope, or a backward, knows the tensor's memory";
    return why ? choir__error(CHOIR_ERR_STATE, "share_memory: %s", why) : CHOIR_OK;
}

choir_status choir_tensor_share_memory(choir_tensor *t)
{
    choir_status status = check(t, "share_memory");
    if (status != CHOIR_OK || choir_tensor_is_shared(t))
        return status;
    status = check_movable(t);
    if (status != CHOIR_OK)
        return status;
    choir__mapping *m = new_mapping(t->storage->bytes, "share_memory");
    if (!m)
        return CHOIR_ERR_MEMORY;
    choir__storage *old = t->storage,
                   *s = choir__storage_mapped(choir__device_of(t), m, 0, old->bytes);
    choir__mapping_unref(m);
    choir__launch_bytes(choir__device_of(t), s->data, old->data, old->bytes);
    s->version = old->version;
    for (int left = views_of(t, s); left > 0; left--)
        choir__storage_unref(old);
    choir__storage_unref(s);
    return CHOIR_OK;
}

/* --- put --- */

enum { LINE = 64 };

static size_t bytes_of(const choir_tensor *t)
{
    return (size_t)t->count * choir_dtype_size(t->dtype);
}

static size_t rounded(size_t bytes)
{
    return (bytes + LINE - 1) & ~(size_t)(LINE - 1);
}

/* One mapping for all tensors of the item that have none; NULL: there is none such. */
static choir_status private_memory(choir_tensor *const *t, int count, choir__mapping **made)
{
    size_t bytes = 0;
    bool any = false;
    *made = NULL;
    for (int i = 0; i < count; i++)
        if (!choir_tensor_is_shared(t[i])) {
            any = true;
            bytes += rounded(bytes_of(t[i]));
        }
    if (any)
        *made = new_mapping(bytes, "tensor queue");
    return any && !*made ? CHOIR_ERR_MEMORY : CHOIR_OK;
}

static int memory_index(choir__queue_item *item, choir__mapping **mapping, choir__mapping *m)
{
    for (int i = 0; i < item->memories; i++)
        if (mapping[i] == m)
            return i;
    mapping[item->memories] = choir__mapping_ref(m);
    return item->memories++;
}

static void describe(choir__queue_tensor *d, const choir_tensor *t)
{
    *d = (choir__queue_tensor){
        .dtype = (int32_t)t->dtype, .ndim = t->shape.ndim, .offset = t->offset};
    memcpy(d->dim, t->shape.dim, sizeof d->dim);
    memcpy(d->stride, t->stride, sizeof d->stride);
    d->at = (uint64_t)((char *)t->storage->data - t->storage->mapping->at);
    d->bytes = t->storage->bytes;
}

/* t into shared memory at `at`: y is a tensor there. Queued. */
static void copy_out(choir_tensor *t, choir__mapping *m, size_t at, choir_tensor *y)
{
    *y = *t;
    y->offset = 0;
    if (!choir__is_dense(t))
        choir__set_row_major(y);
    y->storage = choir__storage_mapped(choir__device_of(t), m, at, bytes_of(t));
    choir__launch_copy(y, t);
}

choir_status choir__queue_pack(choir_tensor *const *t, int count, choir__queue_item *item,
    choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM])
{
    choir__mapping *copies;
    choir_status status = CHOIR_OK;
    memset(item, 0, sizeof *item);
    item->count = count;
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = check(t[i], "tensor queue");
    if (status == CHOIR_OK)
        status = private_memory(t, count, &copies);
    if (status != CHOIR_OK)
        return status;
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        choir_tensor y = *t[i];
        bool copied = !choir_tensor_is_shared(t[i]);
        if (copied) {
            copy_out(t[i], copies, at, &y);
            at += rounded(bytes_of(t[i]));
        }
        describe(&item->t[i], &y);
        item->t[i].memory = memory_index(item, mapping, y.storage->mapping);
        if (copied)
            choir__storage_unref(y.storage);
    }
    choir__mapping_unref(copies);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = choir_device_sync(choir__device_of(t[i]));
    return status;
}

/* --- get --- */

/* Whether a description is one that describe may have made of such a mapping. */
static bool fits(const choir__queue_tensor *d, const choir__mapping *m)
{
    if (d->ndim < 0 || d->ndim > CHOIR_MAX_DIMS || d->at > m->bytes ||
        d->bytes > m->bytes - d->at || d->dtype < 0 || d->dtype >= CHOIR_DTYPE_COUNT)
        return false;
    int64_t last = d->offset;
    for (int i = 0; i < d->ndim; i++) {
        if (d->dim[i] == 0)
            return true;
        last += (d->dim[i] - 1) * d->stride[i];
    }
    return d->offset >= 0 && last >= 0 &&
           (uint64_t)(last + 1) * choir_dtype_size((choir_dtype)d->dtype) <= d->bytes;
}

static choir_tensor *unpack(const choir__queue_tensor *d, choir__mapping *m, choir_scope *scope)
{
    choir_shape shape = {.ndim = d->ndim};
    memcpy(shape.dim, d->dim, sizeof shape.dim);
    choir_tensor *t = choir__tensor_bare(scope, (choir_dtype)d->dtype, shape);
    memcpy(t->stride, d->stride, sizeof t->stride);
    t->offset = d->offset;
    t->storage = choir__storage_mapped(scope->device, m, d->at, d->bytes);
    return t;
}

static choir_status damaged(void)
{
    return choir__error(CHOIR_ERR_INTERNAL, "tensor queue: an item that makes no sense");
}

choir_status choir__queue_unpack(const choir__queue_item *item, const int *fds, int fd_count,
    choir_scope *scope, choir_tensor **t, int count)
{
    choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM] = {NULL};
    char why[200];
    choir_status status = CHOIR_OK;
    if (item->memories != fd_count)
        status = choir__error(CHOIR_ERR_IO,
            "tensor queue: an item lost %d of its %d descriptors; see ulimit -n",
            item->memories - fd_count, item->memories);
    else if (item->count != count)
        status = choir__error(CHOIR_ERR_SHAPE,
            "tensor queue: an item of %d tensors came where %d were asked for", item->count,
            count);
    for (int i = 0; i < fd_count; i++)
        if (status != CHOIR_OK)
            close(fds[i]);
        else if (!(mapping[i] = choir__mapping_adopt(fds[i], why)))
            status = choir__error(CHOIR_ERR_MEMORY, "tensor queue: %s", why);
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        int64_t m = item->t[i].memory;
        if (m < 0 || m >= fd_count || !fits(&item->t[i], mapping[m]))
            status = damaged();
    }
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        t[i] = unpack(&item->t[i], mapping[item->t[i].memory], scope);
    for (int i = 0; i < fd_count; i++)
        choir__mapping_unref(mapping[i]);
    return status;
}
