/* DDP: a reducer for the gradient book, and a module that broadcasts buffers before it
 * forwards.
 *
 * The book's levels are allocated in shared memory, so a bucket that backward has filled is
 * already where the peers can read it. bucket_ready queues its reduction behind an event of the
 * device; the device waits for the group's event only when the optimizer wants the gradients.
 * Everything is queued, nothing waits on the host, so a recorded step replays it. */
#include <choir/ddp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "nn/module.h"

typedef struct ddp {
    choir_module base;
    choir_module *module;
    choir_group *group;
    choir__shared *shared;      /* the book's levels */
    choir__algorithm algorithm; /* of reductions */
    uint64_t synced;            /* one more than the step whose buffers are rank 0's */
} ddp;

choir_ddp_opts choir_ddp_defaults(void)
{
    return (choir_ddp_opts){.bucket_cap_mb = 25, .first_bucket_mb = 1};
}

static choir__queue *group_queue(const ddp *d)
{
    return choir__group_queue(d->group);
}

static void group_waits(const ddp *d, const choir_device *device)
{
    choir__queue_wait_event(group_queue(d), choir__queue_record(device->queue));
}

static void device_waits(const ddp *d, const choir_device *device)
{
    choir__queue_wait_event(device->queue, choir__queue_record(group_queue(d)));
}

/* --- the reducer --- */

static void *alloc_levels(void *reducer, size_t bytes, int levels)
{
    ddp *d = reducer;
    choir_device_sync(d->base.run->device);
    choir__shared_free(d->shared);
    d->shared = NULL;
    if (choir__shared_new(d->group, bytes * (size_t)levels, &d->shared) != CHOIR_OK)
        return NULL;
    return choir__shared_at(d->shared, choir_group_rank(d->group));
}

static void bucket_ready(void *reducer, choir__book *book, int bucket)
{
    ddp *d = reducer;
    const choir__bucket *b = &book->buckets[bucket];
    choir__tree_reduce args = {
        .nodes = (char *)choir__shared_at(d->shared, choir_group_rank(d->group)) + b->offset,
        .node_stride = book->level_bytes,
        .count = b->count,
        .leaves = book->total,
        .scale = b->shared ? 1 : 1.0f / (float)book->total,
        .algorithm = d->algorithm,
    };
    group_waits(d, book->device);
    choir_status status = choir__group_tree_reduce(d->group, &args);
    if (status != CHOIR_OK)
        choir__scope_fail(d->base.run, status);
}

static choir_status finish(void *reducer, choir__book *book)
{
    ddp *d = reducer;
    device_waits(d, book->device);
    return choir__queue_status(group_queue(d));
}

/* The ranks' leaves side by side, each rank's part padded to the longest run:
 *     rank 0: [ids | rows] [ids | rows] ...   rank 1: ... */
static choir_status gather_rows(void *reducer, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    ddp *d = reducer;
    int world = choir_group_world(d->group);
    int64_t n = slot->rows[0].count, longest = (book->total + world - 1) / world;
    size_t ids_bytes = (size_t)n * sizeof(int64_t), rows_bytes = (size_t)(n * row_bytes);
    size_t leaf_bytes = (ids_bytes + rows_bytes + 63) & ~(size_t)63;
    size_t part = leaf_bytes * (size_t)longest;
    choir__storage *buffer = choir__storage_new(book->device, part * (size_t)(world + 1));
    if (!buffer)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for the ranks' embedding gradients",
            choir_device_name(book->device));
    char *mine = buffer->data, *theirs = mine + part;
    for (int64_t l = 0; l < slot->row_count; l++) {
        char *leaf = mine + (size_t)l * leaf_bytes;
        choir__launch_bytes(book->device, leaf, slot->rows[l].ids_data, ids_bytes);
        choir__launch_bytes(
            book->device, leaf + ids_bytes, slot->rows[l].grads_data, rows_bytes);
    }
    group_waits(d, book->device);
    choir_work work;
    choir_status status =
        choir_group_all_gather(d->group, mine, theirs, (int64_t)part, CHOIR_U8, &work);
    if (status != CHOIR_OK) {
        choir__storage_unref(buffer);
        return status;
    }
    device_waits(d, book->device);
    for (int r = 0; r < world; r++) {
        int64_t lo, hi;
        choir__tree_run(book->total, r, world, &lo, &hi);
        for (int64_t l = lo; l < hi; l++) {
            char *leaf = theirs + (size_t)r * part + (size_t)(l - lo) * leaf_bytes;
            all[l] = (choir__leaf_rows){
                .ids_data = leaf, .grads_data = leaf + ids_bytes, .count = n};
        }
    }
    /* The group's queue has read it by the time the device goes on, so the device's order is
     * enough. */
    choir__storage_unref(buffer);
    return CHOIR_OK;
}

static choir_status name_unused(void *reducer, choir__book *book)
{
    char names[400] = "";
    int count = 0;
    (void)reducer;
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        if (!p->tensor->requires_grad || p->uses)
            continue;
        if (count++ < 5)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                count > 1 ? ", " : "", p->name);
    }
    if (!count)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "ddp: %d parameter%s got no gradient in this backward: %s%s; freeze what is not trained",
        count, count > 1 ? "s" : "", names, count > 5 ? ", ..." : "");
}

static void free_reducer(void *reducer)
{
    ddp *d = reducer;
    choir__queue_wait(group_queue(d));
    choir__shared_free(d->shared);
    d->shared = NULL;
}

static const choir__reducer_ops reducer_ops = {
    .alloc = alloc_levels,
    .bucket_ready = bucket_ready,
    .finish = finish,
    .gather_rows = gather_rows,
    .unused = name_unused,
    .free = free_reducer,
};

/* --- the module --- */

static void broadcast_buffer(const char *name, choir_tensor *t, void *arg)
{
    ddp *d = arg;
    (void)name;
    choir_work work;
    if (t->param)
        return;
    choir_status status = choir_group_broadcast(
        d->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, &work);
    if (status != CHOIR_OK)
        choir__scope_fail(d->base.run, status);
}

static void count_buffer(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    *(int *)arg += !t->param;
}

/* Buffers are rank 0's before each forward. They change once a step (on micro-batch 0), so the
 * first forward of a step brings them all. */
static void sync_buffers(ddp *d, choir_scope *scope)
{
    int buffers = 0;
    if (d->synced == scope->step + 1)
        return;
    d->synced = scope->step + 1;
    choir_module_visit(d->module, true, count_buffer, &buffers);
    if (!buffers)
        return;
    group_waits(d, d->base.run->device);
    choir_module_visit(d->module, true, broadcast_buffer, d);
    device_waits(d, d->base.run->device);
}

static choir_tensor *ddp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    ddp *d = (ddp *)self;
    if (self->training && choir_group_world(d->group) > 1)
        sync_buffers(d, choir_tensor_scope(in[0]));
    return choir_forward_n(d->module, in, count);
}

static const choir_module_class ddp_class = {"ddp", sizeof(ddp), ddp_forward};

/* --- construction --- */

/* Ranks must hold the same parameters in the same order: names and shapes, hashed. */
static void hash_tensor(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    char *text = choir__format("%s %s", name, choir__shape_text(t->shape));
    for (const char *c = text; *c; c++)
        *h = (*h ^ (unsigned char)*c) * 0x100000001B3u;
    free(text);
}

/* Machines that compute other bits would drift apart unseen. */
static choir_status check_same_machine(ddp *d)
{
    int world = choir_group_world(d->group);
    char mine[CHOIR__SIGNATURE] = "", *all = choir__calloc((size_t)world, sizeof mine);
    choir__device_signature(d->base.run->device, mine);
    choir_status status =
        choir_group_all_gather(d->group, mine, all, sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (strcmp(all + (size_t)r * sizeof mine, mine))
            status = choir__error(CHOIR_ERR_MISMATCH,
                "ddp: rank %d computes with %s, this one with %s: their bits would differ", r,
                all + (size_t)r * sizeof mine, mine);
    free(all);
    return status;
}

static choir_status check_same_model(ddp *d)
{
    int world = choir_group_world(d->group);
    uint64_t mine = 0xCBF29CE484222325u, *all = choir__calloc((size_t)world, sizeof *all);
    choir_module_visit(d->module, true, hash_tensor, &mine);
    choir_status status = choir_group_all_gather(d->group, &mine, all, 1, CHOIR_I64, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (all[r] != mine)
            status = choir__error(CHOIR_ERR_MISMATCH,
                "ddp: the model of rank %d has other parameters than this one", r);
    free(all);
    return status;
}

struct broadcast {
    ddp *ddp;
    choir_status status;
};

static void broadcast_tensor(const char *name, choir_tensor *t, void *arg)
{
    struct broadcast *b = arg;
    (void)name;
    if (b->status == CHOIR_OK)
        b->status = choir_group_broadcast(
            b->ddp->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
}

/* One queue must order backward and reduction. */
static choir_status check_device(const ddp *d, choir__param *const *params, int count)
{
    choir_device *device = d->base.run->device;
    for (int i = 0; i < count; i++)
        if (choir__device_of(params[i]->tensor) != device)
            return choir__error(CHOIR_ERR_DEVICE,
                "ddp: parameter '%s' is on %s, the run on %s: all must be on the run's device",
                params[i]->name, choir_device_name(choir__device_of(params[i]->tensor)),
                choir_device_name(device));
    return CHOIR_OK;
}

static choir_status take_over(ddp *d, choir_ddp_opts opts)
{
    int world = choir_group_world(d->group), rank = choir_group_rank(d->group), count;
    int64_t asked = opts.microbatches ? opts.microbatches : d->base.run->micro_total, lo, hi;
    int64_t total = asked ? asked : world;
    if (total < world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: %lld micro-batches for %d ranks; each rank needs one", (long long)total,
            world);
    choir__param **params = choir__module_params(d->module, &count);
    choir_status status = check_device(d, params, count);
    if (status != CHOIR_OK) {
        free(params);
        return status;
    }
    for (int i = 0; i < count; i++)
        if (params[i]->book)
            choir__book_free(params[i]->book);
    choir__book *book = choir__book_new(d->base.run, d->base.run->device, params, count);
    free(params);
    choir__tree_run(total, rank, world, &lo, &hi);
    book->first = lo;
    book->planned = hi - lo;
    book->total = total;
    book->bucket_cap = (size_t)(opts.bucket_cap_mb * 1048576);
    book->first_cap = (size_t)(opts.first_bucket_mb * 1048576);
    book->reducer = d;
    book->reducer_ops = &reducer_ops;
    d->base.run->micro_first = lo;
    if (opts.algorithm)
        status = choir__algorithm_parse(opts.algorithm, &d->algorithm);
    if (status == CHOIR_OK)
        status = check_same_machine(d);
    if (status == CHOIR_OK)
        status = check_same_model(d);
    if (status == CHOIR_OK)
        status = choir_device_sync(d->base.run->device);
    struct broadcast b = {d, status};
    if (world > 1)
        choir_module_visit(d->module, true, broadcast_tensor, &b);
    return b.status;
}

choir_module *choir_ddp(
    choir_scope *run, choir_module *module, choir_group *group, choir_ddp_opts opts)
{
    ddp *d = choir_module_new(run, &ddp_class);
    d->group = group;
    d->base.strategy = true;
    choir__module_ready(module); /* names are the module's own, without a prefix */
    choir_module_child(&d->base, "", &d->module, module);
    choir_status status = choir_scope_status(run);
    if (status == CHOIR_OK)
        status = take_over(d, opts);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &d->base;
}
