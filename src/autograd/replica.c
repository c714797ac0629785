/* Replicas: a parameter's values on another device, with their own book (book.h). */
#include <string.h>

#include "autograd/book.h"
#include "tensor/launch.h"

choir__param *choir__param_replica(choir__param *p, choir_device *device)
{
    choir_tensor *of = p->tensor;
    choir_scope *run = of->scope;
    choir__param *replica = choir__arena_get(&run->arena, sizeof *replica);
    choir_tensor *t = choir__tensor_bare(run, of->dtype, of->shape);
    memcpy(t->stride, of->stride, sizeof t->stride);
    t->offset = of->offset;
    t->requires_grad = of->requires_grad;
    t->param = replica;
    t->split = of->split;
    t->held = of->held;
    t->device = device;
    if (choir__device_of(of) != device)
        choir__tensor_allocate(t, device);
    else if (of->storage) /* NULL: it is given its memory later, as shards are, or never */
        t->storage = choir__storage_ref(of->storage);
    choir__storage_holds(t->storage, CHOIR__MEMORY_WEIGHTS);
    replica->tensor = replica->local = t;
    replica->whole = p->whole;
    replica->cols = p->cols;
    replica->boxes = p->boxes;
    replica->box_count = p->box_count;
    replica->name = p->name;
    if (choir__device_of(of) != device)
        choir__storage_tell(t->storage, CHOIR__FOR_WORK, p->name);
    replica->of = p->of;
    replica->padding = p->padding;
    replica->initialised = true;
    return replica;
}

/* Makes the replica share p's memory as it is now. */
static void share(choir_tensor *to, const choir_tensor *from)
{
    if (to->storage)
        choir__storage_unref(to->storage);
    to->storage = choir__storage_ref(from->storage);
    to->offset = from->offset;
}

void choir__param_refresh(choir__param *replica, const choir__param *p)
{
    choir_tensor *from = p->tensor, *to = replica->tensor;
    if (from->storage && from->storage != to->storage &&
        choir__device_of(from) == choir__device_of(to))
        share(to, from);
    if (from->storage == to->storage || replica->fresh == choir__values_of(from))
        return;
    choir__copy_across(to, from);
    choir__queue_wait_event(choir__device_of(from)->queue,
        choir__queue_record(choir__device_of(to)->queue)); /* before p changes again */
    replica->fresh = choir__values_of(from);
    to->storage->version++;
}
