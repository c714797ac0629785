/* Collectives on tensors: a group's collective between two waits, the group's for the device
 * and the device's for the group. Both are queued, so the host continues at once.
 *
 * A tensor on a device that is away (parallel/pipeline/remote.h) has no values on this rank:
 * other ranks run its collectives, which do nothing here. */
#include <choir/distributed.h>

#include "comm/group.h"
#include "parallel/blocks.h"
#include "tensor/handle.h"
#include "tensor/scope.h"
#include "tensor/strategy.h"

/* Makes the device wait for all work that the group has been given so far. */
static choir_status fence(choir_group *group, choir_device *device)
{
    return choir__queue_wait_event(
        device->queue, choir__queue_record(choir__group_queue(group)));
}

/* --- in place --- */

static choir_status usable(const choir_tensor *t, const char *name)
{
    if (t->poisoned || !t->storage)
        return choir__error(CHOIR_ERR_SCOPE, "%s of a tensor that %s", name,
            t->poisoned ? "an earlier error spoilt" : "backward has freed");
    if (!choir__is_dense(t))
        return choir__error(CHOIR_ERR_SHAPE,
            "%s of a view %s with gaps between its elements: take choir_contiguous of it", name,
            choir__shape_text(t->shape));
    return CHOIR_OK;
}

/* Checks the operands, and makes the group wait for t's device. *here: the collective is to run
 * on this rank. */
static choir_status begin(
    const choir_tensor *t, choir_group *group, const char *name, bool *here)
{
    *here = false;
    choir_status status = choir__use_tensor(t, name);
    if (status == CHOIR_OK && !group)
        status = choir__missing(name, "group");
    if (status == CHOIR_OK)
        status = usable(t, name);
    if (status != CHOIR_OK || choir__device_of(t)->away)
        return status;
    choir__storage_claim(t->storage);
    status = choir_group_wait_device(group, choir__device_of(t));
    *here = status == CHOIR_OK;
    return status;
}

/* Notes that the group changes t, if it was asked to without an error. */
static choir_status end(choir_tensor *t, choir_group *group, choir_status status)
{
    if (status != CHOIR_OK)
        return status;
    t->storage->version++;
    return fence(group, choir__device_of(t));
}

choir_status choir_all_reduce(choir_tensor *t, choir_group *group, choir_reduce_op op)
{
    choir_work work;
    bool here;
    choir_status status = begin(t, group, __func__, &here);
    if (!here)
        return status;
    status = choir_group_all_reduce(group, choir__data(t), t->count, t->dtype, op, &work);
    return end(t, group, status);
}

choir_status choir__nodes_add(choir_tensor *nodes, choir_group *group, int64_t slices)
{
    int64_t each = nodes->count / nodes->shape.dim[0];
    bool here;
    choir_status status = begin(nodes, group, __func__, &here);
    if (!here)
        return status;
    status = choir__group_tree_reduce(group, &(choir__tree_reduce){.nodes = choir__data(nodes),
                                                 .node_stride = (size_t)each * sizeof(float),
                                                 .count = each,
                                                 .leaves = slices,
                                                 .scale = 1});
    return end(nodes, group, status);
}

choir_status choir_broadcast(choir_tensor *t, choir_group *group, int root)
{
    choir_work work;
    bool here;
    choir_status status = begin(t, group, __func__, &here);
    if (!here)
        return status;
    status = choir_group_broadcast(group, choir__data(t), t->count, t->dtype, root, &work);
    return end(t, group, status);
}

choir_status choir_reduce(choir_tensor *t, choir_group *group, choir_reduce_op op, int root)
{
    choir_work work;
    bool here;
    choir_status status = begin(t, group, __func__, &here);
    if (!here)
        return status;
    status = choir_group_reduce(group, choir__data(t), t->count, t->dtype, op, root, &work);
    return end(t, group, status);
}

/* --- new tensors --- */

/* Which ranks' rows a tensor has. */
typedef enum rows {
    OWN = 1,
    ALL /* a part for each rank */
} rows;

static choir_tensor *failed(choir_tensor *y, choir_status status)
{
    choir__scope_fail(y->scope, status);
    y->poisoned = true;
    return y;
}

/* Returns t in contiguous memory where it is: ops call collectives for their values, whose own
 * dtypes stay, and a pipeline may not take this for an op of the next stage. */
static choir_tensor *contiguous(choir_tensor *t)
{
    choir_scope *scope = t->scope;
    const choir__op_dtypes caller = scope->op;
    bool was = choir__placement_pause(scope, true);
    t = choir_contiguous(t);
    choir__placement_pause(scope, was);
    scope->op = caller;
    return t;
}

/* Makes *t contiguous, and the group wait for its device. Returns a new tensor of `to` rows for
 * t's `from` rows; *ready: neither is poisoned, and the collective is to run on this rank. */
static choir_tensor *result(
    choir_tensor **t, choir_group *group, const char *name, rows from, rows to, bool *ready)
{
    *ready = false;
    *t = choir__sound(*t, name);
    if (!group)
        return choir__poison_missing((*t)->scope, name, "group");
    if (!(*t)->poisoned)
        *t = contiguous(*t);
    if ((*t)->poisoned)
        return *t;
    int world = choir_group_world(group), parts = from == ALL ? world : 1;
    choir_shape shape = (*t)->shape;
    if (shape.ndim < 1 || shape.dim[0] % parts)
        return choir__poison((*t)->scope, CHOIR_ERR_SHAPE,
            "%s: expected a first dimension that is a multiple of %d, the number of ranks, "
            "got %s",
            name, parts, choir__shape_text(shape));
    shape.dim[0] = shape.dim[0] / parts * (to == ALL ? world : 1);
    choir_tensor *y = choir__tensor_new((*t)->scope, choir__device_of(*t), (*t)->dtype, shape);
    if (y->poisoned || choir__device_of(y)->away)
        return y;
    choir_status status = choir_group_wait_device(group, choir__device_of(*t));
    *ready = status == CHOIR_OK;
    return *ready ? y : failed(y, status);
}

static choir_tensor *finish(choir_tensor *y, choir_group *group, choir_status status)
{
    if (status == CHOIR_OK)
        status = fence(group, choir__device_of(y));
    return status == CHOIR_OK ? y : failed(y, status);
}

choir_tensor *choir_all_gather(choir_tensor *t, choir_group *group)
{
    bool ready;
    choir_work work;
    choir_tensor *y = result(&t, group, __func__, OWN, ALL, &ready);
    if (!ready)
        return y;
    return finish(y, group,
        choir_group_all_gather(
            group, choir__data(t), choir__data(y), t->count, t->dtype, &work));
}

choir_tensor *choir_reduce_scatter(choir_tensor *t, choir_group *group, choir_reduce_op op)
{
    bool ready;
    choir_work work;
    choir_tensor *y = result(&t, group, __func__, ALL, OWN, &ready);
    if (!ready)
        return y;
    return finish(y, group,
        choir_group_reduce_scatter(
            group, choir__data(t), choir__data(y), y->count, t->dtype, op, &work));
}

choir_tensor *choir_all_to_all(choir_tensor *t, choir_group *group)
{
    bool ready;
    choir_work work;
    choir_tensor *y = result(&t, group, __func__, ALL, ALL, &ready);
    if (!ready)
        return y;
    return finish(y, group,
        choir_group_all_to_all(group, choir__data(t), choir__data(y),
            t->count / choir_group_world(group), t->dtype, &work));
}
