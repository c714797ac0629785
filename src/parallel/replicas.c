/* Replicas: the tensors of a module are collected once, parameters before buffers, with the
 * fields that point to them. Filling a replica copies values from the first device's tensors;
 * binding sets the fields. Views, parts and fields that do not hold the registered tensor are
 * refused by name. */
#include "parallel/shards.h"
#include "tensor/launch.h"

#include <stdlib.h>
#include <string.h>

/* --- the contents of a module --- */

static int index_of(const choir__replicas *r, const choir_tensor *t)
{
    for (int i = 0; i < r->count; i++)
        if (r->replica[0].tensor[i] == t)
            return i;
    return -1;
}

static void add_tensor(choir__replicas *r, choir_tensor *t)
{
    if (index_of(r, t) >= 0)
        return;
    CHOIR__GROW(r->replica[0].tensor, r->count);
    r->replica[0].tensor[r->count++] = t;
}

static void collect_tensors(choir__replicas *r, choir_module *m, bool params)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            collect_tensors(r, e->child, params);
        else if (params == (e->tensor->param != NULL))
            add_tensor(r, e->tensor);
}

static choir_status no_replica(const choir_module *m, const char *name, const char *why)
{
    const char *path = *m->path ? m->path : m->type->name;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "data_parallel: module '%s' cannot be cloned: '%s' %s", path, name, why);
}

static choir_status collect_fields(choir__replicas *r, choir_module *m)
{
    choir_status status = CHOIR_OK;
    if (m->inside->strategy && m->inside->strategy->places)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "data_parallel: module '%s' cannot be cloned: it contains a %s, which places its work "
            "itself; wrap what is inside of it",
            *r->module->path ? r->module->path : r->module->type->name, m->type->name);
    for (choir__module_entry *e = m->inside->entries; e && status == CHOIR_OK; e = e->next) {
        choir_tensor **field = (choir_tensor **)(void *)((char *)m + e->field);
        if (e->kind == CHOIR__CHILD) {
            status = collect_fields(r, e->child);
            continue;
        }
        if (*field != e->tensor)
            return no_replica(m, e->name, "is not in the field that was registered for it");
        if (choir__is_part(e->tensor))
            return no_replica(m, e->name, "is this rank's part of a weight (tensor_parallel)");
        if (!choir__is_dense(e->tensor) || e->tensor->offset)
            return no_replica(m, e->name, "is a view of other memory");
        CHOIR__GROW(r->fields, r->field_count);
        r->fields[r->field_count++] = (choir__field){field, e, index_of(r, e->tensor)};
    }
    return status;
}

static const char *name_of(const choir__replicas *r, int i)
{
    for (int f = 0; f < r->field_count; f++)
        if (r->fields[f].tensor == i)
            return i < r->params ? r->replica[0].tensor[i]->param->name
                                 : r->fields[f].entry->name;
    return "";
}

/* Checks that the module's own tensors are still on the first device. */
static choir_status check_home(const choir__replicas *r)
{
    const choir_device *home = r->replica[0].device;
    for (int i = 0; i < r->count; i++) {
        const choir_tensor *t = r->replica[0].tensor[i];
        if (t->storage && t->storage->device != home)
            return choir__error(CHOIR_ERR_DEVICE,
                "data_parallel: '%s' is on %s, not on %s, the first of the devices; "
                "choir_module_to moves a module",
                name_of(r, i), choir_device_name(t->storage->device), choir_device_name(home));
    }
    return CHOIR_OK;
}

choir_status choir__replicas_open(
    choir__replicas *r, choir_module *module, choir_device *const *devices, int count)
{
    r->run = module->run;
    r->module = module;
    r->devices = count;
    r->replica = choir__calloc((size_t)count, sizeof *r->replica);
    for (int d = 0; d < count; d++) {
        r->replica[d].device = devices[d];
        if (count > 1)
            choir__queue_beside_others(devices[d]->queue);
    }
    collect_tensors(r, module, true);
    r->params = r->count;
    collect_tensors(r, module, false);
    choir_status status = collect_fields(r, module);
    return status == CHOIR_OK ? check_home(r) : status;
}

void choir__replicas_free(choir__replicas *r)
{
    for (int d = 0; d < r->devices; d++) {
        (void)!choir_device_sync(r->replica[d].device);
        free(r->replica[d].tensor);
        free(r->replica[d].fresh);
    }
    free(r->replica);
    free(r->fields);
    *r = (choir__replicas){0};
}

/* --- a replica's tensors --- */

static choir_tensor *buffer_like(choir_scope *run, const choir_tensor *t, choir_device *device)
{
    choir_tensor *copy = choir__tensor_bare(run, t->dtype, t->shape);
    memcpy(copy->stride, t->stride, sizeof copy->stride);
    choir__tensor_allocate(copy, device);
    choir__storage_holds(copy->storage, CHOIR__MEMORY_WEIGHTS);
    return copy;
}

static choir_status make(choir__replicas *r, int i)
{
    choir__replica *to = &r->replica[i];
    choir__scope_uses(r->run, to->device);
    to->tensor = choir__calloc((size_t)r->count + 1, sizeof(choir_tensor *));
    to->fresh = choir__calloc((size_t)r->count + 1, sizeof *to->fresh);
    choir__param **params = choir__calloc((size_t)r->params + 1, sizeof(choir__param *));
    for (int t = 0; t < r->count; t++) {
        choir_tensor *own = r->replica[0].tensor[t];
        if (t < r->params) {
            params[t] = choir__param_replica(own->param, to->device);
            to->tensor[t] = params[t]->tensor;
        } else {
            to->tensor[t] = buffer_like(r->run, own, to->device);
        }
    }
    if (choir__scope_status(r->run) == CHOIR_OK)
        to->book = choir__book_new(r->run, to->device, params, r->params);
    free(params);
    return choir__scope_status(r->run);
}

static void copy_values(choir_device *device, const choir_tensor *to, const choir_tensor *from)
{
    size_t bytes = (size_t)from->count * choir_dtype_size(from->dtype);
    choir__launch_bytes(device, choir__data(to), choir__data(from), bytes);
    choir__queue_moved(device->queue, choir__device_of(from)->queue, bytes);
}

/* Copies the values [first, last) of replica 0, on `device`. */
static void fill_some(
    choir__replicas *r, choir__replica *to, choir_device *device, int first, int last)
{
    for (int t = first; t < last; t++) {
        choir_tensor *from = r->replica[0].tensor[t], *own = to->tensor[t];
        own->requires_grad = from->requires_grad;
        own->hooks = from->hooks;
        /* Kernels change buffers without a new version. */
        if (t < r->params && to->fresh[t] == choir__values_of(from))
            continue;
        copy_values(device, own, from);
        own->storage->version++; /* a backward that saved the old values notices */
        to->fresh[t] = choir__values_of(from);
    }
}

/* Returns the first of the parameters that replica 0's own device copies: its share of the
 * elements, if it can reach the replica's memory. Else it would wait for the others. */
static int first_of_home(const choir__replicas *r)
{
    int64_t all = 0, share = 0;
    int first = r->params;
    for (int t = 0; t < r->params; t++)
        all += r->replica[0].tensor[t]->count;
    while (!r->replica[0].device->far && first > 0 &&
           share + r->replica[0].tensor[first - 1]->count <= all / r->devices)
        share += r->replica[0].tensor[--first]->count;
    return first;
}

static void fill_params(choir__replicas *r, choir__replica *to)
{
    choir_device *home = r->replica[0].device;
    int first = first_of_home(r);
    if (first < r->params) { /* the replica may still read its old values */
        choir__queue_wait_event(home->queue, choir__queue_record(to->device->queue));
        fill_some(r, to, home, first, r->params);
    }
    fill_some(r, to, to->device, 0, first);
    if (first < r->params)
        choir__queue_wait_event(to->device->queue, choir__queue_record(home->queue));
}

choir_status choir__replicas_fill(choir__replicas *r, int i, choir__event from)
{
    choir__replica *to = &r->replica[i];
    choir_status status = check_home(r);
    if (status == CHOIR_OK && !to->tensor)
        status = make(r, i);
    if (status != CHOIR_OK || i == 0)
        return status;
    choir__queue_wait_event(to->device->queue, from);
    fill_some(r, to, to->device, r->params, r->count);
    choir__event read = choir__queue_record(to->device->queue);
    /* replica 0's forward will update the statistics */
    for (int t = r->params; t < r->count; t++)
        if (r->replica[0].tensor[t]->storage->block)
            choir__block_used_by(r->replica[0].tensor[t]->storage->block, read);
    fill_params(r, to);
    to->filled = choir__queue_record(to->device->queue);
    to->unread = true;
    return CHOIR_OK;
}

void choir__replicas_take_buffers(choir__replicas *r, int i)
{
    choir__replica *home = &r->replica[0], *from = &r->replica[i];
    if (r->count == r->params)
        return;
    choir__queue_wait_event(home->device->queue, choir__queue_record(from->device->queue));
    for (int t = r->params; t < r->count; t++) {
        choir__storage_claim(home->tensor[t]->storage);
        copy_values(home->device, home->tensor[t], from->tensor[t]);
    }
    choir__queue_wait_event(from->device->queue, choir__queue_record(home->device->queue));
}

void choir__replicas_were_read(choir__replicas *r)
{
    for (int i = 1; i < r->devices; i++) {
        if (r->replica[i].unread)
            choir__queue_wait_event(r->replica[0].device->queue, r->replica[i].filled);
        r->replica[i].unread = false;
    }
}

void choir__replicas_bind(choir__replicas *r, int i)
{
    for (int f = 0; f < r->field_count; f++) {
        choir__field *b = &r->fields[f];
        *b->field = b->entry->tensor = r->replica[i].tensor[b->tensor];
    }
}
