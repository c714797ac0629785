/* DDP: a reducer for the gradient book, and a module that broadcasts buffers before it
 * forwards.
 *
 * The book's levels are allocated in shared memory, so a bucket that backward has filled is
 * already where the peers can read it. bucket_ready queues its reduction behind an event of the
 * device; the device waits for the group's event only when the optimizer wants the gradients.
 * Everything is queued, nothing waits on the host, so a recorded step replays it. */
#include <choir/ddp.h>

#include <stdlib.h>

#include "parallel/lent.h"
#include "parallel/ranks.h"

typedef struct ddp {
    choir_module base;
    choir_module *module;
    choir_group *group;
    choir__shared *shared;      /* the book's levels */
    size_t charged;             /* bytes of it, to the device's pool */
    choir__algorithm algorithm; /* of reductions */
    uint64_t synced;            /* one more than the step whose buffers are rank 0's */
    choir_ddp_opts opts;
    bool lent; /* a pipeline reduces gradients and syncs buffers, stage by stage */
} ddp;

choir_ddp_opts choir_ddp_defaults(void)
{
    return (choir_ddp_opts){.bucket_cap_mb = 25, .first_bucket_mb = 1};
}

/* --- the reducer --- */

static void free_levels(ddp *d)
{
    choir__shared_free(d->shared);
    choir__pool_charge(d->base.run->device, -(ptrdiff_t)d->charged);
    d->shared = NULL;
    d->charged = 0;
}

static void *alloc_levels(void *reducer, size_t bytes, int levels)
{
    ddp *d = reducer;
    choir_device_sync(d->base.run->device);
    free_levels(d);
    bytes *= (size_t)levels;
    if (!choir__pool_charge(d->base.run->device, (ptrdiff_t)bytes)) {
        choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for gradients, %zu bytes; fsdp shards them",
            choir_device_name(d->base.run->device), bytes);
        return NULL;
    }
    d->charged = bytes;
    if (choir__shared_new(d->group, bytes, &d->shared) != CHOIR_OK)
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
    choir__group_waits(d->group, book->device);
    choir_status status = choir__group_tree_reduce(d->group, &args);
    if (status != CHOIR_OK)
        choir__scope_fail(d->base.run, status);
}

static choir_status finish(void *reducer, choir__book *book)
{
    ddp *d = reducer;
    choir__device_waits(book->device, d->group);
    return choir__queue_status(choir__group_queue(d->group));
}

static choir_status gather_rows(void *reducer, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    return choir__ranks_gather_rows(((ddp *)reducer)->group, book, slot, row_bytes, all);
}

static choir_status name_unused(void *reducer, choir__book *book)
{
    (void)reducer;
    return choir__ranks_name_unused(book, "ddp");
}

static void free_reducer(void *reducer)
{
    ddp *d = reducer;
    choir__queue_wait(choir__group_queue(d->group));
    free_levels(d);
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

static choir_tensor *ddp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    ddp *d = (ddp *)self;
    if (self->training && choir_group_world(d->group) > 1 && !d->lent)
        choir__ranks_sync_buffers(d->group, d->module, choir_tensor_scope(in[0]), &d->synced);
    return choir_forward_n(d->module, in, count);
}

static const choir_module_class ddp_class = {"ddp", sizeof(ddp), ddp_forward};

/* --- construction --- */

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
        status = choir__ranks_agree(d->group, d->module, "ddp");
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
    d->opts = opts;
    d->base.strategy = true;
    choir__module_ready(module); /* names are the module's own, without a prefix */
    choir_module_child(&d->base, "", &d->module, module);
    choir_status status = choir_scope_status(run);
    choir_module *pipeline = choir__pipeline_within(module);
    d->lent = pipeline != NULL;
    if (status == CHOIR_OK)
        status =
            pipeline ? choir__pipeline_replicate(pipeline, group, opts) : take_over(d, opts);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &d->base;
}

choir_status choir__ddp_lend(choir_module *module, choir_group **group, choir_ddp_opts *opts)
{
    ddp *d = (ddp *)module;
    if (module->type != &ddp_class)
        return CHOIR_ERR_ARGUMENT;
    d->lent = true;
    *group = d->group;
    *opts = d->opts;
    return CHOIR_OK;
}
