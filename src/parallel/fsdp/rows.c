/* A rank's rows of a parameter, the fence that orders the ranks' accesses to them, and memory
 * of earlier sums. */
#include "parallel/fsdp/fsdp.h"

#include <stdlib.h>
#include <string.h>

/* Cuts the boxes of p's tensor to its rows [lo, lo + n). The tensor may already be a part of
 * the whole (tensor_parallel). */
static void cut_boxes(choir_scope *run, choir__param *p, int64_t lo, int64_t n)
{
    choir__box all = {.size = {1}};
    const choir__box *old = p->boxes ? p->boxes : &all;
    int count = p->boxes ? p->box_count : 1;
    choir__box *boxes = choir__arena_get(&run->arena, (size_t)count * sizeof *boxes);
    for (int d = 0; d < p->tensor->shape.ndim; d++)
        all.size[d] = p->tensor->shape.dim[d];
    p->boxes = boxes;
    p->box_count = 0;
    p->first_row = lo;
    for (int b = 0; b < count; b++) {
        int64_t first = choir__max(old[b].at[0], lo),
                end = choir__min(old[b].at[0] + old[b].size[0], lo + n);
        if (first >= end && count > 1)
            continue;
        choir__box *box = &boxes[p->box_count++];
        *box = old[b];
        box->from[0] += first - box->at[0];
        box->at[0] = first - lo;
        box->size[0] = choir__max(0, end - first);
    }
}

void choir__fsdp_take_rows(choir__fsdp *f, choir__param *p, const choir__rows_cut *cut,
    choir__storage *storage, int64_t at)
{
    choir_scope *run = f->base.run;
    choir_shape shape = p->tensor->shape.ndim ? p->tensor->shape : choir_dims(1);
    int64_t lo,
        n = choir__cut_part(cut, choir_group_rank(f->shard), choir_group_world(f->shard), &lo);
    shape.dim[0] = cut->row ? n / cut->row : 0;
    cut_boxes(run, p, cut->row ? lo / cut->row : 0, shape.dim[0]);
    p->local = choir__tensor_bare(run, p->tensor->dtype, shape);
    memcpy(p->local->stride, p->tensor->stride, sizeof p->local->stride);
    if (!p->tensor->shape.ndim)
        p->local->stride[0] = 1;
    p->local->held = p->tensor->held;
    p->local->offset = at;
    p->local->storage = choir__storage_ref(storage);
}

choir_status choir__fsdp_fence(choir__fsdp *f)
{
    choir_work work;
    choir__group_waits(f->shard, f->device);
    choir_status status = choir_group_barrier(f->shard, &work);
    choir__device_waits(f->device, f->shard);
    return status;
}

bool choir__fsdp_let_sums_go(choir__fsdp *f)
{
    bool any = f->before_count > 0 || f->group_before.at;
    choir__group_memory_free(&f->group_before);
    for (int i = 0; i < f->before_count; i++)
        choir__storage_unref(f->before[i]);
    free(f->before);
    f->before = NULL;
    f->before_count = 0;
    return any;
}
