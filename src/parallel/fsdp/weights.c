/* The memory of weights, and the rows that are this rank's.
 *
 * All parameters are stored in one array, each at a multiple of 64 bytes:
 *
 *     | embedding      | block 0 ...          | ... |
 *     | rank 0 | rank 1| 0 | 1 | 0 | 1 | 0| 1 | ... |    rows of dimension 0, one run per rank
 *
 * In stage 3 the array is one piece of shared memory. Every rank maps it, computes with all of
 * it and writes its own rows, so each machine has one copy of the weights. In stages 1 and
 * 2 each rank has its own array, and the optimizer's step ends with an in-place all-gather.
 * gather.c implements stage 3 without shared memory (as on GPUs), and off-load. */
#include <stdlib.h>

#include "parallel/fsdp/fsdp.h"
#include "tensor/launch.h"

enum { ALIGN = 16 }; /* elements */

int64_t choir__fsdp_micros(const choir__fsdp *f)
{
    int64_t asked =
        f->opts.microbatches ? f->opts.microbatches : choir__run_of(f->base.run)->micro_total;
    return asked ? asked : choir_group_world(f->group);
}

bool choir__fsdp_offloads(const choir__fsdp *f)
{
    return f->opts.offload || f->opts.offload_folder;
}

static int64_t rows_of(const choir_tensor *t)
{
    return t->shape.ndim ? t->shape.dim[0] : 1;
}

/* Computes the parameters' positions; returns the elements of the array. */
static int64_t place(choir__fsdp *f)
{
    int64_t at = 0;
    f->weight_cuts = choir__calloc((size_t)f->count + 1, sizeof *f->weight_cuts);
    for (int i = 0; i < f->count; i++) {
        const choir_tensor *t = f->params[i]->tensor;
        int64_t rows = rows_of(t);
        f->weight_cuts[i] =
            (choir__rows_cut){.at = at, .rows = rows, .row = rows ? t->count / rows : 0};
        at += (t->count + ALIGN - 1) / ALIGN * ALIGN;
    }
    return at;
}

choir_status choir__fsdp_is_free(const choir__fsdp *f, const choir__param *p)
{
    bool rows = p->local != p->tensor && p->tensor->storage; /* false: the rows were released */
    bool taken = rows || (p->replicas && !f->staged) || (p->book && p->book->reducer);
    return !taken ? CHOIR_OK
                  : choir__error(CHOIR_ERR_STATE,
                        "fsdp: parameter '%s' is in the hands of another strategy already",
                        p->name);
}

/* A rank's rows must be contiguous: dimension 0 must be the outermost one. */
static choir_status can_shard(const choir__fsdp *f, const choir__param *p)
{
    const choir_device *device = f->device;
    const choir_tensor *t = p->tensor;
    choir_status status = choir__fsdp_is_free(f, p);
    if (status != CHOIR_OK)
        return status;
    if (t->dtype == CHOIR_F64 || f->dtype == CHOIR_F64) {
        if (t->dtype != f->dtype)
            return choir__error(CHOIR_ERR_DTYPE,
                "fsdp: parameter '%s' is of %s, '%s' of %s: expected f64 in all or in none",
                p->name, choir_dtype_name(t->dtype), f->params[0]->name,
                choir_dtype_name(f->dtype));
    } else if (t->dtype != CHOIR_F32 && !t->held) {
        return choir__error(CHOIR_ERR_DTYPE,
            "fsdp: parameter '%s' is of %s; shards are of f32 or f64 weights; autocast computes "
            "with f32 weights in 16 bits",
            p->name, choir_dtype_name(t->dtype));
    }
    if (choir__device_of(t) != device)
        return choir__error(CHOIR_ERR_DEVICE,
            "fsdp: parameter '%s' is on %s, the run on %s: all must be on the run's device",
            p->name, choir_device_name(choir__device_of(t)), choir_device_name(device));
    for (int d = 1; d < t->shape.ndim; d++)
        if (t->shape.dim[0] > 1 && t->shape.dim[d] > 1 && t->stride[d] > t->stride[0])
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "fsdp: the rows of parameter '%s' %s do not lie one behind the other", p->name,
                choir__shape_text(t->shape));
    return CHOIR_OK;
}

/* Moves p to its place in the array, with its current or initial values, or with the rows that
 * were released. In shared memory, each rank writes only its own rows. */
static void settle(choir__fsdp *f, choir__param *p, const choir__rows_cut *cut, char *array)
{
    choir_tensor *t = p->tensor, old = *t, *rows = p->local == t ? NULL : p->local;
    choir_device *device = f->device;
    size_t bytes = (size_t)t->count * choir_dtype_size(f->dtype);
    int64_t lo;
    if (f->whole) {
        t->storage = choir__storage_ref(f->whole);
        t->offset = cut->at;
    } else {
        t->storage = choir__storage_wrap(
            device, array + (size_t)cut->at * choir_dtype_size(f->dtype), bytes);
    }
    t->storage->version = old.storage ? old.storage->version + 1 : 0;
    choir__cut_part(cut, choir_group_rank(f->shard), choir_group_world(f->shard), &lo);
    choir__fsdp_take_rows(f, p, cut, t->storage, t->offset + lo);
    choir_tensor *mine = f->whole ? t : p->local;
    int64_t first = f->whole ? 0 : mine->offset;
    if (rows)
        choir__launch_bytes(device, choir__data(p->local), choir__data(rows),
            (size_t)rows->count * choir_dtype_size(f->dtype));
    else if (p->initialised && mine->count)
        choir__launch_bytes(device, choir__data(mine),
            (char *)choir__data(&old) + (size_t)first * choir_dtype_size(f->dtype),
            (size_t)mine->count * choir_dtype_size(f->dtype));
    else
        choir__param_draw(p, mine, first);
    p->initialised = true;
    choir__storage_unref(old.storage);
    if (rows)
        choir__tensor_release(rows);
}

static const char share_name[] = "(this rank's shares)";

static choir_status allocate(choir__fsdp *f, int64_t elements, char **array)
{
    choir_device *device = f->device;
    size_t bytes = (size_t)elements * choir_dtype_size(f->dtype);
    if (f->opts.stage < 3) {
        f->whole = choir__storage_new(device, bytes);
        choir__storage_holds(f->whole, CHOIR__MEMORY_WEIGHTS);
        choir__storage_tell(f->whole, CHOIR__FOR_WORK, "(all weights)");
        *array = f->whole ? f->whole->data : NULL;
        return f->whole
                   ? CHOIR_OK
                   : choir__error(CHOIR_ERR_MEMORY,
                         "out of memory on %s for the weights, %zu bytes; stage 3 shards them",
                         choir_device_name(device), bytes);
    }
    size_t world = (size_t)choir_group_world(f->shard), share = (bytes + world - 1) / world;
    if (!choir__pool_charge(device, (ptrdiff_t)share, CHOIR__MEMORY_WEIGHTS, share_name))
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for this rank's share of the weights, %zu bytes",
            choir_device_name(device), share);
    f->charged += share;
    bool first = choir_group_rank(f->shard) == 0;
    choir_status status = choir__shared_new(f->shard, first ? bytes : 0, &f->shared);
    if (status != CHOIR_OK)
        return status;
    *array = choir__shared_at(f->shared, 0);
    return CHOIR_OK;
}

bool choir__fsdp_gathers(const choir__fsdp *f)
{
    return f->opts.stage == 3 &&
           (f->opts.gather || f->outside || !choir__ranks_share(f->shard, f->device));
}

choir_status choir__fsdp_shard(choir__fsdp *f)
{
    choir_status status = CHOIR_OK;
    char *array = NULL;
    bool wide = f->count && f->params[0]->tensor->dtype == CHOIR_F64;
    f->dtype = wide ? CHOIR_F64 : CHOIR_F32;
    for (int i = 0; i < f->count && status == CHOIR_OK; i++)
        status = can_shard(f, f->params[i]);
    if (status == CHOIR_OK && choir__fsdp_gathers(f))
        return choir__fsdp_gather_new(f);
    if (status == CHOIR_OK)
        status = allocate(f, place(f), &array);
    if (status != CHOIR_OK)
        return status;
    choir__scope_uses(f->base.run, f->device);
    bool rows = false;
    for (int i = 0; i < f->count; i++) {
        rows |= f->params[i]->local != f->params[i]->tensor;
        settle(f, f->params[i], &f->weight_cuts[i], array);
    }
    return rows ? choir__fsdp_publish(f) : choir__fsdp_fence(f);
}

choir_status choir__fsdp_shard_away(choir__fsdp *f)
{
    f->dtype = CHOIR_F32; /* a pipeline's */
    f->whole = choir__storage_new(f->device, (size_t)place(f) * choir_dtype_size(f->dtype));
    if (!f->whole)
        return choir__error(CHOIR_ERR_MEMORY, "out of addresses");
    for (int i = 0; i < f->count; i++) {
        settle(f, f->params[i], &f->weight_cuts[i], NULL);
        f->params[i]->local->storage->outside = f->outside; /* as on the rank that has them */
    }
    return CHOIR_OK;
}

choir_status choir__fsdp_publish(choir__fsdp *f)
{
    choir_device *device = f->device;
    if (f->gather) {
        choir__fsdp_gather_updated(f->gather);
        return CHOIR_OK;
    }
    if (!f->whole)
        return choir__fsdp_fence(f);
    choir__gather_rows args = {.all = f->whole->data,
        .cuts = f->weight_cuts,
        .cut_count = f->count,
        .dtype = f->dtype};
    choir__group_waits(f->shard, device);
    choir_status status = choir__group_gather_rows(f->shard, &args);
    choir__device_waits(device, f->shard);
    return status;
}

choir_status choir__fsdp_release(choir__fsdp *f)
{
    if (f->gather)
        choir__fsdp_gather_reset(f->gather);
    for (int i = 0; i < f->count; i++) {
        choir__param *p = f->params[i];
        choir_tensor *rows = p->local, old = *rows;
        if (!choir__tensor_allocate(rows, f->device))
            return choir__scope_status(f->base.run);
        choir__storage_holds(rows->storage, CHOIR__MEMORY_WEIGHTS);
        choir__storage_tell(rows->storage, CHOIR__FOR_WORK, p->name);
        rows->offset = 0;
        if (rows->count)
            choir__launch_bytes(f->device, choir__data(rows), choir__data(&old),
                (size_t)rows->count * choir_dtype_size(f->dtype));
        choir__storage_unref(old.storage);
        choir__storage_unref(p->tensor->storage);
        p->tensor->storage = NULL;
        p->tensor->device = f->device;
        p->tensor->offset = 0;
        p->boxes = p->part_boxes;
        p->box_count = p->part_box_count;
        p->first_row = 0;
    }
    choir_status status =
        choir_device_sync(f->device); /* the device may still read the array */
    choir__fsdp_free_weights(f);
    return status;
}

void choir__fsdp_free_weights(choir__fsdp *f)
{
    choir__fsdp_gather_free(f->gather);
    choir__offload_store_unref(f->outside);
    choir__shared_free(f->shared);
    choir__storage_unref(f->whole);
    choir__pool_charge(f->device, -(ptrdiff_t)f->charged, CHOIR__MEMORY_WEIGHTS, share_name);
    free(f->weight_cuts);
}
