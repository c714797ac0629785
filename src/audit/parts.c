/* The hashes of this rank's tensors, one kernel call per box, in the queues of their devices:
 * the numbers stay where they are, and a word per box comes back.
 *
 * An element's place is its position in the whole tensor in memory order, which all ranks share
 * (convolutions' weights are channels-last everywhere). A box of it is some runs of consecutive
 * places, at even distances. */
#include "audit/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "optim/optim.h"
#include "tensor/launch.h"

typedef struct work {
    choir__audit_parts *parts;
    choir__audit_call *list; /* (count) calls whose sums are not there yet */
    int count;
    int module; /* where the search for a tensor's module begins: at the one before */
    choir__audit_ride *ride; /* NULL: the update takes no hashes of this tensor */
} work;

/* --- names of modules --- */

/* Returns the module's part of a tensor's name: "fc1" of "fc1.weight". A moment's name begins
 * with its kind: "exp_avg.fc1.weight". */
static void module_of(const choir__item *item, const char **name, size_t *length)
{
    const char *dot = item->moment ? strchr(item->name, '.') : NULL;
    *name = dot ? dot + 1 : item->name;
    const char *end = strrchr(*name, '.');
    *length = end ? (size_t)(end - *name) : 0;
}

/* Returns a module's place among the names, or -1. The search begins at `from`: tensors are
 * sorted by name, so most have the module of the one before, or the next. */
static int find(const choir__audit_names *names, int from, const char *name, size_t length)
{
    for (int k = 0; k < names->count; k++) {
        int i = (from + k) % names->count;
        if (strlen(names->list[i]) == length && !strncmp(names->list[i], name, length))
            return i;
    }
    return -1;
}

void choir__audit_names_of(choir__audit_names *names, const choir__items *items)
{
    const char *name;
    size_t length;
    *names = (choir__audit_names){0};
    for (int i = 0; i < items->count; i++) {
        module_of(&items->list[i], &name, &length);
        if (items->list[i].moment || find(names, names->count - 1, name, length) >= 0)
            continue;
        CHOIR__GROW(names->list, names->count);
        names->list[names->count++] = choir__format("%.*s", (int)length, name);
    }
}

bool choir__audit_names_have(const choir__audit_names *names, const choir__item *item)
{
    const char *name;
    size_t length;
    module_of(item, &name, &length);
    return find(names, 0, name, length) >= 0;
}

void choir__audit_names_free(choir__audit_names *names)
{
    for (int i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
    *names = (choir__audit_names){0};
}

/* --- kernel calls of a box --- */

static void add_call(work *w, choir_device *device, const choir__k_hash *args)
{
    if (choir__audit_rides(w->ride, w->parts, w->parts->count - 1, device, args))
        return;
    CHOIR__GROW(w->list, w->count);
    w->list[w->count++] =
        (choir__audit_call){.device = device, .args = *args, .part = w->parts->count - 1};
}

static void add_missed(void *arg, const choir__audit_call *call)
{
    work *w = arg;
    CHOIR__GROW(w->list, w->count);
    w->list[w->count++] = *call;
}

/* The dimensions of a tensor in memory order, the outermost first. */
typedef struct order {
    int ndim, dim[CHOIR_MAX_DIMS];
    int64_t place[CHOIR_MAX_DIMS]; /* elements of the whole from one index to the next */
} order;

static order order_of(const choir_tensor *t, choir_shape whole)
{
    order o = {.ndim = whole.ndim};
    for (int d = 0; d < o.ndim; d++) {
        int at = d;
        for (; at > 0 && t->stride[o.dim[at - 1]] < t->stride[d]; at--)
            o.dim[at] = o.dim[at - 1];
        o.dim[at] = d;
    }
    int64_t place = 1;
    for (int i = o.ndim - 1; i >= 0; i--) {
        o.place[o.dim[i]] = place;
        place *= whole.dim[o.dim[i]];
    }
    return o;
}

uint64_t choir__audit_name(const choir__item *item)
{
    return choir__rng_key(0, item->name);
}

uint64_t choir__audit_region(const choir__box_region *region, int ndim)
{
    uint64_t mixed = 0;
    for (int d = 0; d < ndim; d++)
        mixed =
            choir__mix(choir__mix(mixed, (uint64_t)region->from[d]), (uint64_t)region->size[d]);
    return mixed;
}

void choir__audit_places(const choir__item *item, int64_t place[CHOIR_MAX_DIMS])
{
    order o = order_of(item->tensor, item->whole);
    memcpy(place, o.place, sizeof o.place);
}

/* Adds the calls for the rest of a box, from dimension number `at` of the order on. */
static void add_calls(work *w, choir_device *device, choir__k_hash k, const choir_tensor *t,
    const choir__box *box, const order *o, int at, int inner, char *data)
{
    if (at < inner) {
        int d = o->dim[at];
        for (int64_t i = 0; i < box->size[d]; i++) {
            choir__k_hash next = k;
            next.at += i * o->place[d];
            add_calls(w, device, next, t, box, o, at + 1, inner,
                data + i * t->stride[d] * (int64_t)choir_dtype_size(k.dtype));
        }
        return;
    }
    k.x = data;
    add_call(w, device, &k);
}

/* Adds a part for a box of a tensor, whose numbers of type dtype begin at data and are laid out
 * like t. */
static void add_box(work *w, choir__audit_part part, const choir_tensor *t, char *data,
    choir_dtype dtype, const choir__box *box, choir_shape whole)
{
    choir__k_hash k = {.rows = 1, .cols = 1, .dtype = dtype};
    order o = order_of(t, whole);
    int inner = o.ndim;
    part.count = 1;
    for (int d = 0; d < o.ndim; d++) {
        data += box->at[d] * t->stride[d] * (int64_t)choir_dtype_size(dtype);
        k.at += box->from[d] * o.place[d];
        part.count *= box->size[d];
    }
    choir__box_region region = choir__box_region_of(box);
    part.region = choir__audit_region(&region, o.ndim);
    /* dimensions that are consecutive here and in the whole are one run; one of size 1 has any
     * stride */
    while (inner > 0 &&
           (whole.dim[o.dim[inner - 1]] == 1 ||
               (t->stride[o.dim[inner - 1]] == k.cols && o.place[o.dim[inner - 1]] == k.cols)))
        k.cols *= box->size[o.dim[--inner]];
    if (inner > 0) {
        int d = o.dim[--inner];
        k.rows = box->size[d];
        k.row = t->stride[d];
        k.at_row = o.place[d];
    }
    CHOIR__GROW(w->parts->list, w->parts->count);
    w->parts->list[w->parts->count++] = part;
    add_calls(w, choir__device_of(t), k, t, box, &o, 0, inner, data);
}

static void add_item(work *w, const choir__audit_names *names, const choir__item *item,
    choir__audit_kind kind, char *data, choir_dtype dtype)
{
    const char *name;
    size_t length;
    module_of(item, &name, &length);
    choir__audit_part part = {.kind = kind,
        .module = find(names, w->module, name, length),
        .name = choir__audit_name(item),
        .buffer = item->buffer,
        .whole = choir__shape_count(item->whole)};
    w->module = part.module >= 0 ? part.module : w->module;
    for (int b = 0; b < item->box_count && part.module >= 0; b++)
        add_box(w, part, item->tensor, data, dtype, &item->boxes[b], item->whole);
}

/* --- running them --- */

/* Issues the calls of one device, from the first that is not done, and adds their sums. */
static choir_status run_calls(work *w, choir_scope *scope, choir_device *device)
{
    int64_t count = 0;
    for (int i = 0; i < w->count; i++)
        count += w->list[i].device == device;
    choir_tensor *sums = choir__tensor_new(scope, device, CHOIR_I64, choir_dims(count));
    if (sums->poisoned)
        return choir_scope_status(scope);
    choir__launch_fill(sums, 0);
    uint64_t *at = choir__data(sums);
    for (int i = 0; i < w->count; i++)
        if (w->list[i].device == device) {
            w->list[i].args.sum = at++;
            choir__launch(device, CHOIR_F32, hash, &w->list[i].args);
        }
    uint64_t *read = choir__calloc((size_t)count + 1, sizeof *read);
    choir_status status = choir_read(sums, read, (size_t)count * sizeof *read);
    for (int64_t i = 0, k = 0; i < w->count; i++)
        if (w->list[i].device == device) {
            w->parts->list[w->list[i].part].hash += read[k++];
            w->list[i].device = NULL;
        }
    free(read);
    return status;
}

/* Adds the parts of an item. */
static void take_item(work *w, const choir__audit_names *names, const choir__item *item,
    const choir__audit_taking *t)
{
    char *grad = item->param ? (char *)choir__param_grad_data(item->param) : NULL;
    if (!item->box_count)
        return;
    bool first = t->ride && t->ride->fresh && item->param; /* no gradient is there yet */
    w->ride = grad || item->moment || first ? t->ride : NULL;
    if (item->tensor->storage)
        add_item(w, names, item, item->moment ? t->state : t->weights,
            choir__data(item->tensor), item->dtype);
    if (grad && t->gradients)
        add_item(w, names, item, CHOIR__AUDIT_GRADIENTS, grad, item->param->book->dtype);
}

choir_status choir__audit_take(choir__audit_parts *parts, const choir__audit_names *names,
    choir_module *module, const choir__items *items, choir__audit_taking taking)
{
    work w = {.parts = parts};
    bool fetch = taking.ride && taking.ride->done;
    choir_status status = fetch ? choir__run_sync(module->run) : CHOIR_OK;
    if (fetch)
        choir__audit_ride_fetch(taking.ride, parts, add_missed, &w);
    for (int i = 0; i < items->count; i++)
        take_item(&w, names, &items->list[i], &taking);
    choir_scope *scope = choir_no_grad(module->run);
    if (status == CHOIR_OK)
        status = choir_scope_status(scope);
    for (int i = 0; i < w.count && status == CHOIR_OK; i++)
        if (w.list[i].device)
            status = run_calls(&w, scope, w.list[i].device);
    free(w.list);
    choir_status closed = choir_scope_close(scope);
    return status == CHOIR_OK ? closed : status;
}
