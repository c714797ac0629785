/* Collectives on tensors: a group's collective between two waits, the group's for the device
 * and the device's for the group. Both are queued, so the host goes on at once. */
#include <choir/distributed.h>

#include "comm/group.h"
#include "tensor/handle.h"
#include "tensor/scope.h"

/* Makes the device wait for all work that the group has been given so far. */
static choir_status fence(choir_group *group, choir_device *device)
{
    return choir__queue_wait_event(
        device->queue, choir__queue_record(choir__group_queue(group)));
}

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

choir_status choir_all_reduce(choir_tensor *t, choir_group *group, choir_reduce_op op)
{
    choir_status use_t = choir__use_tensor(t, __func__);
    if (use_t != CHOIR_OK)
        return use_t;
    if (!group)
        return choir__missing(__func__, "group");
    choir_work work;
    choir_status status = usable(t, "choir_all_reduce");
    if (status == CHOIR_OK)
        status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(group, choir__data(t), t->count, t->dtype, op, &work);
    if (status != CHOIR_OK)
        return status;
    t->storage->version++;
    return fence(group, choir__device_of(t));
}

choir_status choir_broadcast(choir_tensor *t, choir_group *group, int root)
{
    choir_status use_t = choir__use_tensor(t, __func__);
    if (use_t != CHOIR_OK)
        return use_t;
    if (!group)
        return choir__missing(__func__, "group");
    choir_work work;
    choir_status status = usable(t, "choir_broadcast");
    if (status == CHOIR_OK)
        status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_broadcast(group, choir__data(t), t->count, t->dtype, root, &work);
    if (status != CHOIR_OK)
        return status;
    t->storage->version++;
    return fence(group, choir__device_of(t));
}

choir_status choir_reduce(choir_tensor *t, choir_group *group, choir_reduce_op op, int root)
{
    choir_status use_t = choir__use_tensor(t, __func__);
    if (use_t != CHOIR_OK)
        return use_t;
    if (!group)
        return choir__missing(__func__, "group");
    choir_work work;
    choir_status status = usable(t, "choir_reduce");
    if (status == CHOIR_OK)
        status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_reduce(group, choir__data(t), t->count, t->dtype, op, root, &work);
    if (status != CHOIR_OK)
        return status;
    t->storage->version++;
    return fence(group, choir__device_of(t));
}

/* --- new tensors --- */

/* Returns a new tensor whose rows are those of t times up / down. */
static choir_tensor *result(
    choir_tensor **t, const char *name, int up, int down, bool *usable_one)
{
    *usable_one = false;
    if ((*t)->poisoned)
        return *t;
    *t = choir_contiguous(*t);
    choir_shape shape = (*t)->shape;
    if ((*t)->poisoned)
        return *t;
    if (shape.ndim < 1 || shape.dim[0] % down)
        return choir__poison((*t)->scope, CHOIR_ERR_SHAPE,
            "%s: expected a first dimension that is a multiple of %d, the number of ranks, "
            "got %s",
            name, down, choir__shape_text(shape));
    shape.dim[0] = shape.dim[0] / down * up;
    choir_tensor *y = choir__tensor_new((*t)->scope, choir__device_of(*t), (*t)->dtype, shape);
    *usable_one = !y->poisoned;
    return y;
}

static choir_tensor *finish(
    choir_tensor *t, choir_tensor *y, choir_group *group, choir_status status)
{
    if (status == CHOIR_OK)
        status = fence(group, choir__device_of(t));
    if (status != CHOIR_OK) {
        choir__scope_fail(t->scope, status);
        y->poisoned = true;
    }
    return y;
}

choir_tensor *choir_all_gather(choir_tensor *t, choir_group *group)
{
    t = choir__sound(t, __func__);
    if (!group)
        return choir__poison_missing(t->scope, __func__, "group");
    bool good;
    choir_work work;
    choir_tensor *y = result(&t, "choir_all_gather", choir_group_world(group), 1, &good);
    if (!good)
        return y;
    choir_status status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_all_gather(
            group, choir__data(t), choir__data(y), t->count, t->dtype, &work);
    return finish(t, y, group, status);
}

choir_tensor *choir_reduce_scatter(choir_tensor *t, choir_group *group, choir_reduce_op op)
{
    t = choir__sound(t, __func__);
    if (!group)
        return choir__poison_missing(t->scope, __func__, "group");
    bool good;
    choir_work work;
    choir_tensor *y = result(&t, "choir_reduce_scatter", 1, choir_group_world(group), &good);
    if (!good)
        return y;
    choir_status status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_reduce_scatter(
            group, choir__data(t), choir__data(y), y->count, t->dtype, op, &work);
    return finish(t, y, group, status);
}

choir_tensor *choir_all_to_all(choir_tensor *t, choir_group *group)
{
    t = choir__sound(t, __func__);
    if (!group)
        return choir__poison_missing(t->scope, __func__, "group");
    bool good;
    choir_work work;
    int world = choir_group_world(group);
    choir_tensor *y = result(&t, "choir_all_to_all", world, world, &good);
    if (!good)
        return y;
    choir_status status = choir_group_wait_device(group, choir__device_of(t));
    if (status == CHOIR_OK)
        status = choir_group_all_to_all(
            group, choir__data(t), choir__data(y), t->count / world, t->dtype, &work);
    return finish(t, y, group, status);
}
