/* Tensors in shared memory, and their description in a message. */
#include "parallel/tensor_queue/tensor_queue.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/scope.h"

#include <string.h>
#include <unistd.h>

bool choir_tensor_is_shared(const choir_tensor *t)
{
    if (choir__use_tensor(t, __func__) != CHOIR_OK)
        return false;
    return t->storage && (t->storage->mapping || t->storage->shared);
}

static choir_status check(const choir_tensor *t, const char *what)
{
    if (t->poisoned)
        return choir__scope_status(t->scope);
    if (!t->storage)
        return choir__error(CHOIR_ERR_SCOPE, "%s: backward has freed the tensor", what);
    const choir__far *far = choir__device_of(t)->far;
    if (strcmp(choir__device_of(t)->kind, "cpu") && !(far && far->show))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: a tensor on %s, whose memory processes cannot share", what,
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

/* Returns the number of handles in t's scope that use t's memory. Moves them to `storage`
 * unless that is NULL. */
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
    choir_status use = choir__use_tensor(t, __func__);
    if (use != CHOIR_OK)
        return use;
    choir_status status = check(t, "share_memory");
    if (status != CHOIR_OK || choir_tensor_is_shared(t))
        return status;
    status = check_movable(t);
    if (status != CHOIR_OK)
        return status;
    if (choir__device_of(t)->far) { /* other processes can open its memory in place */
        t->storage->shared = true;
        return CHOIR_OK;
    }
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

/* Allocates memory for copies of the item's tensors in private memory; *made is NULL if the
 * item has none. */
static choir_status private_memory(choir_tensor *const *t, int count, choir__storage **made)
{
    size_t bytes = 0;
    choir_device *device = NULL;
    *made = NULL;
    for (int i = 0; i < count; i++)
        if (!choir_tensor_is_shared(t[i])) {
            device = choir__device_of(t[i]);
            bytes += rounded(bytes_of(t[i]));
        }
    if (!device)
        return CHOIR_OK;
    if (device->far) {
        *made = choir__storage_new(device, bytes ? bytes : 1);
        return *made ? CHOIR_OK
                     : choir__error(CHOIR_ERR_MEMORY,
                           "tensor queue: %zu bytes, for copies of what is put, do not fit %s",
                           bytes, device->name);
    }
    choir__mapping *m = new_mapping(bytes, "tensor queue");
    if (m)
        *made = choir__storage_mapped(device, m, 0, bytes);
    choir__mapping_unref(m);
    return m ? CHOIR_OK : CHOIR_ERR_MEMORY;
}

/* Finds the index of s's memory in the item; adds it if it is new. */
static choir_status find_memory(choir_tensor_queue *q, choir__queue_item *item,
    choir__mapping **mapping, choir__storage *s, int *index)
{
    int i = 0;
    choir_status status = CHOIR_OK;
    while (i < item->memories && mapping[i] != s->mapping &&
           (s->mapping || mapping[i]->at != (char *)s->data))
        i++;
    *index = i;
    if (i < item->memories)
        return CHOIR_OK;
    if (s->device->far)
        status = choir__loan_new(q, s, &item->memory[i], &mapping[i]);
    else
        mapping[i] = choir__mapping_ref(s->mapping);
    item->memories += status == CHOIR_OK;
    return status;
}

static void describe(choir__queue_tensor *d, const choir_tensor *t, const choir__mapping *m)
{
    *d = (choir__queue_tensor){
        .dtype = (int32_t)t->dtype, .ndim = t->shape.ndim, .offset = t->offset};
    memcpy(d->dim, t->shape.dim, sizeof d->dim);
    memcpy(d->stride, t->stride, sizeof d->stride);
    d->at = (uint64_t)((char *)t->storage->data - m->at);
    d->bytes = t->storage->bytes;
}

/* Copies t to offset `at` of shared memory s; *y becomes a tensor there. Queued. */
static void copy_out(choir_tensor *t, choir__storage *s, size_t at, choir_tensor *y)
{
    *y = *t;
    y->offset = (int64_t)(at / choir_dtype_size(t->dtype));
    if (!choir__is_dense(t))
        choir__set_row_major(y);
    y->storage = s;
    choir__launch_copy(y, t);
}

static bool one_device(choir_tensor *const *t, int count)
{
    for (int i = 1; i < count; i++)
        if (choir__device_of(t[i])->far && choir__device_of(t[i]) != choir__device_of(t[0]))
            return false;
    return !count || !choir__device_of(t[count - 1])->far == !choir__device_of(t[0])->far;
}

static choir_status check_all(choir_tensor *const *t, int count)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = check(t[i], "tensor queue");
    if (status == CHOIR_OK && !one_device(t, count))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "tensor queue: an item of tensors on several devices; put them one by one");
    return status;
}

choir_status choir__queue_pack(choir_tensor_queue *q, choir_tensor *const *t, int count,
    choir__queue_item *item, choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM])
{
    choir__storage *copies = NULL;
    memset(item, 0, sizeof *item);
    item->count = count;
    choir_status status = check_all(t, count);
    if (status == CHOIR_OK)
        status = private_memory(t, count, &copies);
    if (status != CHOIR_OK)
        return status;
    size_t at = 0;
    for (int i = 0; i < count && status == CHOIR_OK; i++) {
        choir_tensor y = *t[i];
        if (!choir_tensor_is_shared(t[i])) {
            copy_out(t[i], copies, at, &y);
            at += rounded(bytes_of(t[i]));
        }
        int m;
        status = find_memory(q, item, mapping, y.storage, &m);
        if (status == CHOIR_OK)
            describe(&item->t[i], &y, mapping[m]);
        item->t[i].memory = m;
    }
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        status = choir_device_sync(choir__device_of(t[i]));
    choir__storage_unref(copies);
    return status;
}

/* --- get --- */

/* Returns true if the description is valid for this mapping. */
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

/* The memory of an item in this process: a mapping of another process's memory, or storage that
 * this process has lent. */
typedef struct place {
    choir__mapping *mapping;
    choir__storage *own;
} place;

static void drop_place(place *p)
{
    choir__mapping_unref(p->mapping);
    choir__storage_unref(p->own);
}

static choir_tensor *unpack(const choir__queue_tensor *d, const place *p, choir_scope *scope)
{
    choir_shape shape = {.ndim = d->ndim};
    memcpy(shape.dim, d->dim, sizeof shape.dim);
    choir_tensor *t = choir__tensor_bare(scope, (choir_dtype)d->dtype, shape);
    memcpy(t->stride, d->stride, sizeof t->stride);
    t->offset = d->offset;
    t->storage = p->own ? choir__storage_ref(p->own)
                        : choir__storage_mapped(scope->device, p->mapping, d->at, d->bytes);
    return t;
}

static choir_status damaged(void)
{
    return choir__error(CHOIR_ERR_INTERNAL, "tensor queue: an item that makes no sense");
}

/* Finds memory that this process itself has lent. */
static choir_status take_back(place *p, const choir__queue_memory *memory, choir_device *device)
{
    p->own = choir__loan_find(memory->loan);
    if (!p->own)
        return damaged();
    return p->own->device == device
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_DEVICE,
                     "tensor queue: the item is on %s of this process, not on %s; get it "
                     "there, and move it by choir_to_device",
                     p->own->device->name, device->name);
}

static choir_status find_place(
    place *p, const choir__queue_memory *memory, int fd, choir_device *device)
{
    char why[200];
    if (memory->owner && memory->owner == (int32_t)getpid()) {
        /* take_back takes a reference before the loan may end */
        choir_status status = take_back(p, memory, device);
        close(fd);
        return status;
    }
    if (!memory->owner == !device->far) {
        if (memory->owner) {
            p->mapping = choir__loan_open(device, memory, fd);
            return p->mapping ? CHOIR_OK : CHOIR_ERR_DEVICE;
        }
        p->mapping = choir__mapping_adopt(fd, why);
        return p->mapping ? CHOIR_OK : choir__error(CHOIR_ERR_MEMORY, "tensor queue: %s", why);
    }
    close(fd);
    return choir__error(CHOIR_ERR_DEVICE,
        "tensor queue: the item is in %s memory, and the scope is on %s; get it there, and "
        "move it by choir_to_device",
        memory->owner ? "a GPU's" : "the processors'", device->name);
}

static choir_status check_places(
    const choir__queue_item *item, const place *places, int fd_count)
{
    for (int i = 0; i < item->count; i++) {
        int64_t m = item->t[i].memory;
        if (m < 0 || m >= fd_count)
            return damaged();
        const place *p = &places[m];
        choir__mapping whole = {.bytes = p->own ? p->own->bytes : p->mapping->bytes};
        if (!fits(&item->t[i], &whole))
            return damaged();
    }
    return CHOIR_OK;
}

choir_status choir__queue_unpack(const choir__queue_item *item, const int *fds, int fd_count,
    choir_scope *scope, choir_tensor **t, int count)
{
    place places[CHOIR_TENSOR_QUEUE_ITEM] = {{NULL, NULL}};
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
        else
            status = find_place(&places[i], &item->memory[i], fds[i], scope->device);
    if (status == CHOIR_OK)
        status = check_places(item, places, fd_count);
    for (int i = 0; i < count && status == CHOIR_OK; i++)
        t[i] = unpack(&item->t[i], &places[item->t[i].memory], scope);
    for (int i = 0; i < fd_count; i++)
        drop_place(&places[i]);
    return status;
}
