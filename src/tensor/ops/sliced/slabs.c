/* Slabs of partial sums. A slab has one array per slice, so the fixed tree over slices
 * becomes a recursion of additions over its arrays, in place; ranks exchange what their own
 * slices could not complete. */
#include "tensor/ops/sliced/slabs.h"

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

int choir__slices_nodes(const choir__partition *p, choir__node nodes[CHOIR__MAX_NODES])
{
    if (!p->whole)
        return choir__tree_nodes(p->first, p->first + p->own, nodes);
    nodes[0] = (choir__node){0, p->cut.leaves};
    return 1;
}

choir__arrays choir__arrays_of(const choir_tensor *t)
{
    return (choir__arrays){
        choir__device_of(t), choir__data(t), t->count / t->shape.dim[0], t->dtype};
}

char *choir__array_of(const choir__arrays *s, int64_t i)
{
    return s->data + (size_t)(i * s->each) * choir_dtype_size(s->dtype);
}

void choir__arrays_fold(const choir__arrays *s, int64_t lo, int64_t n)
{
    if (n < 2)
        return;
    int64_t left = 1;
    while (2 * left < n)
        left *= 2;
    choir__arrays_fold(s, lo, left);
    choir__arrays_fold(s, lo + left, n - left);
    choir__k_add_scaled args = {.a = choir__array_of(s, lo),
        .b = choir__array_of(s, lo + left),
        .y = choir__array_of(s, lo),
        .n = s->each,
        .scale = 1,
        .dtype = s->dtype};
    choir__launch(s->device, s->dtype, add_scaled, &args);
}

void choir__arrays_fold_nodes(
    const choir__arrays *s, int64_t first, const choir__node *nodes, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t at = nodes[i].start - first;
        choir__arrays_fold(s, at, nodes[i].leaves);
        if (at != i)
            choir__launch_bytes(s->device, choir__array_of(s, i), choir__array_of(s, at),
                (size_t)s->each * choir_dtype_size(s->dtype));
    }
}

bool choir__slices_join(const choir__partition *part, choir_tensor *nodes, bool sharing)
{
    choir_status status = part->by->ops->parts->join(part, nodes, sharing);
    if (status != CHOIR_OK)
        choir__scope_fail(nodes->scope, status);
    return status == CHOIR_OK;
}

choir_tensor *choir__slab_array(choir_tensor *slab, int64_t i, choir_shape shape)
{
    choir_tensor *t = choir__tensor_alias(slab->scope, slab);
    t->shape = shape;
    t->count = choir__shape_count(shape);
    t->offset += i * t->count;
    choir__set_row_major(t);
    return t;
}

choir_tensor *choir__new_slab(choir_scope *scope, choir_device *device, choir_dtype dtype,
    int64_t count, choir_shape shape)
{
    choir_shape whole = {.ndim = shape.ndim + 1, .dim = {count}};
    memcpy(whole.dim + 1, shape.dim, (size_t)shape.ndim * sizeof *shape.dim);
    return choir__tensor_new(scope, device, choir__is_half(dtype) ? CHOIR_F32 : dtype, whole);
}

choir__tape_entry *choir__made_by(
    const choir__op *op, choir__tape_entry *r, int i, choir__tape_entry **of, int *input)
{
    choir__tape_entry *made = r->in[i] ? r->in[i]->producer : NULL;
    *of = r;
    *input = i;
    if (made && (made->op == &choir__cast_op || made->op == &choir__recast_op)) {
        *of = made;
        *input = 0;
        made = made->in[0]->producer;
    }
    while (made && made->op == &choir__to_op)
        made = made->in[0]->producer;
    return made && made->op == op ? made : NULL;
}
