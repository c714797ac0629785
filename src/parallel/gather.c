/* Gather: joins pieces into one tensor, as one entry on the batch's tape.
 *
 * Its backward cuts the gradient into pieces, walks each piece's tape on its device, and joins
 * the gradients of the inputs. Gradients of parameters go to the devices' books (see
 * data_parallel/sum.c). */
#include "parallel/shards.h"

#include <string.h>

#include "autograd/walk.h"
#include "tensor/launch.h"

enum { MAX_SUMS = 64 };

typedef struct joint { /* of the entry's arena */
    choir_shards *shards;
    int dim; /* dimension along which outputs were joined; -1: scalars, joined to a vector */
} joint;

/* Returns piece i's part of t, which has the layout of the gathered output. */
static choir_tensor *part_of_joint(choir_scope *scope, const joint *j, choir_tensor *t, int i)
{
    int64_t start = 0;
    const choir_shards *s = j->shards;
    if (j->dim >= 0) {
        for (int k = 0; k < i; k++)
            start += s->piece[k].out->shape.dim[j->dim];
        return choir__tensor_part(scope, t, j->dim, start, s->piece[i].out->shape.dim[j->dim]);
    }
    choir_tensor *one = choir__tensor_part(scope, t, 0, i, 1);
    one->shape = CHOIR_SCALAR;
    return one;
}

/* Returns the piece's part of gy on its own device. */
static choir_tensor *gradient_of(const joint *j, choir_tensor *gy, int i)
{
    choir__batch_piece *p = &j->shards->piece[i];
    choir_tensor *part = part_of_joint(p->scope, j, gy, i);
    choir_device *device = choir__device_of(p->out);
    if (choir__device_of(gy) == device)
        return part;
    choir_tensor *there = choir__tensor_bare(p->scope, part->dtype, part->shape);
    if (choir__tensor_allocate(there, device))
        choir__copy_across(there, part);
    choir__tensor_release(part);
    return there;
}

/* Gives the gradient of an input that was distributed over the pieces. */
static void give_parts(const joint *j, choir__tape_entry *r, int k, choir__sink *sink)
{
    const choir_shards *s = j->shards;
    choir_tensor *gx = sink->dest(sink, r, k);
    if (!gx)
        return;
    for (int i = 0; i < s->count; i++) {
        const choir__batch_piece *p = &s->piece[i];
        choir_tensor *part =
            choir__tensor_part(sink->scope, gx, s->dp->dim, p->part.start, p->part.length);
        if (p->in[k]->grad)
            choir__move_values(part, p->in[k]->grad);
        else if (choir__is_contiguous(part))
            choir__launch_fill(part, 0);
        else
            choir__move_values(part, choir_zeros(sink->scope, part->dtype, part->shape));
    }
    sink->give(sink, r, k, gx);
}

/* Gives the gradient of an input that all pieces had whole: the sum in the tree's order. */
static void give_sum(const joint *j, choir__tape_entry *r, int k, choir__sink *sink)
{
    const choir_shards *s = j->shards;
    choir_tensor *sum[MAX_SUMS], *x = r->in[k];
    choir__node node[MAX_SUMS];
    int top = 0;
    for (int i = 0; i < s->count; i++) {
        choir_tensor *g =
            choir__tensor_new(sink->scope, choir__device_of(x), x->dtype, x->shape);
        if (g->poisoned)
            return;
        if (s->piece[i].in[k]->grad)
            choir__move_values(g, s->piece[i].in[k]->grad);
        else
            choir__launch_fill(g, 0);
        sum[top] = g;
        node[top++] = (choir__node){i, 1};
        for (; top > 1 &&
               (i + 1 == s->count || choir__tree_siblings(node[top - 2], node[top - 1]));
             top--) {
            choir__launch_add(sum[top - 2], sum[top - 2], sum[top - 1]);
            choir__tensor_release(sum[top - 1]);
            node[top - 2].leaves *= 2;
        }
    }
    sum[0]->grad_owned = true;
    sink->give(sink, r, k, sum[0]);
}

static void give_inputs(const joint *j, choir__tape_entry *r, choir__sink *sink)
{
    const choir_shards *s = j->shards;
    for (int k = 0; k < s->in_count; k++) {
        if (!choir__wanted(r, k))
            continue;
        if (choir__is_dealt(s, s->in[k]))
            give_parts(j, r, k, sink);
        else
            give_sum(j, r, k, sink);
        for (int i = 0; i < s->count; i++) { /* the next walk begins without gradients */
            choir_tensor *leaf = s->piece[i].in[k];
            if (leaf->grad)
                choir__tensor_release(leaf->grad);
            leaf->grad = NULL;
        }
    }
}

static choir_status walk_piece(choir__batch_piece *p, choir_tensor *g)
{
    choir_tensor *root = p->out;
    choir_status status = CHOIR_OK;
    if (root->producer)
        status = choir__backward_inner(root, g);
    else if (root->requires_grad) /* the output is an input */
        root->grad = choir__tensor_alias(p->scope, g);
    if (status == CHOIR_OK && root->producer)
        choir__tensor_release(root);
    return status;
}

static void gather_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const joint *j = r->attrs;
    choir_shards *s = j->shards;
    choir_tensor **g =
        choir__arena_get(&sink->scope->arena, (size_t)s->count * sizeof(choir_tensor *));
    choir_status status = CHOIR_OK;
    if (s->dp->book && choir__sink_writes(sink, s->dp->book))
        status = choir__error(CHOIR_ERR_STATE,
            "data_parallel: a parameter of module '%s' is used outside of its replicas, too; give "
            "that loss a backward of its own",
            *s->dp->module->path ? s->dp->module->path : s->dp->module->type->name);
    if (status == CHOIR_OK)
        status = choir__wave_open(s);
    for (int i = 0; i < s->count && status == CHOIR_OK; i++) {
        g[i] = gradient_of(j, gy, i);
        status = choir__scope_status(s->piece[i].scope);
    }
    for (int i = 0; i < s->count && status == CHOIR_OK; i++) {
        status = walk_piece(&s->piece[i], g[i]);
        if (status != CHOIR_OK)
            choir__piece_failed(s, &s->piece[i], "backward", status);
    }
    if (status == CHOIR_OK)
        status = choir__wave_close(s, choir__sink_parts(sink));
    if (status != CHOIR_OK) {
        choir__wave_fail(s->dp);
        choir__scope_fail(sink->scope, status);
        return;
    }
    give_inputs(j, r, sink);
}

static const choir__op gather_op = {
    .name = "data_parallel", .any_dtype = true, .backward = gather_backward};

/* Makes an entry whose inputs are the batch's, and one more input that represents the
 * parameters. */
static void leave_entry(joint *j, choir_tensor *y)
{
    choir_shards *s = j->shards;
    choir_tensor *in[CHOIR__MAX_IN];
    bool wanted = false;
    for (int i = 0; i < s->count; i++)
        wanted |= s->piece[i].out->requires_grad;
    if (!wanted || !s->scope->grad)
        return;
    memcpy(in, s->in, (size_t)s->in_count * sizeof(choir_tensor *));
    choir_tensor *params =
        choir__tensor_wrap(s->scope, choir__device_of(y), CHOIR_F32, CHOIR_SCALAR, NULL);
    params->requires_grad = true;
    in[s->in_count] = params;
    choir__tape_entry *r = choir__tape_entry_new(&gather_op, y, in, s->in_count + 1);
    if (r)
        choir__tape_entry_attrs(r, j, sizeof *j);
}

/* Returns NULL, or the error if the outputs do not fit together. */
static choir_tensor *misfit(const choir_shards *s, int dim)
{
    const choir_tensor *first = s->piece[0].out;
    if (first->shape.ndim && dim >= first->shape.ndim)
        return choir__poison(s->scope, CHOIR_ERR_SHAPE,
            "gather: the replicas' results, %s on %s, have no dimension %d to be joined along",
            choir__shape_text(first->shape), choir_device_name(choir__device_of(first)), dim);
    for (int i = 1; i < s->count; i++) {
        const choir_tensor *t = s->piece[i].out;
        choir_shape shape = t->shape;
        if (shape.ndim && shape.ndim == first->shape.ndim)
            shape.dim[dim] = first->shape.dim[dim];
        if (!choir__same_shape(shape, first->shape) || t->dtype != first->dtype)
            return choir__poison(s->scope, CHOIR_ERR_SHAPE,
                "gather: the replica on %s gave %s %s, that on %s %s %s",
                choir_device_name(choir__device_of(first)), choir_dtype_name(first->dtype),
                choir__shape_text(first->shape), choir_device_name(choir__device_of(t)),
                choir_dtype_name(t->dtype), choir__shape_text(t->shape));
    }
    return NULL;
}

choir_tensor *choir_gather(choir_shards *s, choir_device *device, int dim)
{
    choir_tensor *bad = choir__file_shards_unsound(s, __func__);
    if (bad || (bad = s->poisoned))
        return bad;
    for (int i = 0; i < s->count; i++)
        if (!s->piece[i].out)
            return choir__poison(s->scope, CHOIR_ERR_STATE,
                "gather: the module has not run on these pieces; choir_parallel_apply does that");
    const choir_tensor *first = s->piece[0].out;
    joint j = {s, first->shape.ndim ? dim : -1};
    if (dim < 0)
        j.dim = dim = dim + first->shape.ndim;
    choir_tensor *wrong =
        dim < 0 && first->shape.ndim
            ? choir__poison(s->scope, CHOIR_ERR_SHAPE, "gather: %s has no dimension %d",
                  choir__shape_text(first->shape), dim - first->shape.ndim)
            : misfit(s, dim);
    if (wrong)
        return wrong;
    choir_shape shape = first->shape.ndim ? first->shape : choir_dims(s->count);
    for (int i = 1; i < s->count && first->shape.ndim; i++)
        shape.dim[dim] += s->piece[i].out->shape.dim[dim];
    choir_tensor *y = choir__tensor_bare(s->scope, first->dtype, shape);
    if (dim == 0 && choir__is_dense(first) &&
        first->stride[0] * first->shape.dim[0] == first->count)
        /* keeps the layout of images: channels last */
        memcpy(y->stride, first->stride, sizeof y->stride);
    if (dim + 1 < first->shape.ndim)
        y->split = first->split; /* scores keep the slices of their classes */
    choir__tensor_allocate(y, device ? device : s->dp->output);
    for (int i = 0; i < s->count && !y->poisoned; i++) {
        choir_tensor *part = part_of_joint(s->scope, &j, y, i);
        choir__move_values(part, s->piece[i].out);
        choir__tensor_release(part);
    }
    if (!y->poisoned)
        leave_entry(&j, y);
    return y;
}
