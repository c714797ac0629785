/* Slices and concatenations: narrow, split and chunk are views; cat and stack copy. */
#include <stdlib.h>
#include <string.h>

#include <choir/select.h>

#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"
#include "tensor/op.h"

/* --- narrow --- */

struct slice {
    int dim;
    int64_t start;
};

/* If a tensor has several slices, the slice that was used last makes the tensor's whole
 * gradient; the others add to their own part of it. */
static void narrow_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct slice *a = r->attrs;
    choir_tensor *given, *gx = sink->dest_onto(sink, r, 0, &given);
    if (!gx)
        return;
    choir_tensor *part =
        choir__tensor_part(sink->scope, gx, a->dim, a->start, gy->shape.dim[a->dim]);
    if (given && given != gx)
        choir__launch_copy(gx, given);
    else if (!given)
        choir__launch_fill(gx, 0);
    if (given)
        choir__launch_add(part, part, gy);
    else
        choir__launch_copy(part, gy);
    sink->give(sink, r, 0, gx);
}

/* gy among zeros */
static void narrow_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct slice *a = r->attrs;
    int64_t widths[2 * CHOIR_MAX_DIMS] = {0};
    int last = r->in[0]->shape.ndim - 1, at = 2 * (last - a->dim);
    widths[at] = a->start;
    widths[at + 1] = r->in[0]->shape.dim[a->dim] - a->start - gy->shape.dim[a->dim];
    gx[0] = choir_pad(gy, widths, at + 2, 0);
}

static const choir__op narrow_op = {.name = "narrow",
    .by_token = true,
    .any_dtype = true,
    .backward = narrow_backward,
    .derivative = narrow_derivative,
    .view = true};

choir_tensor *choir_narrow(choir_tensor *x, int dim, int64_t start, int64_t length)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&narrow_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(x, &dim))
        return choir__bad_dim("narrow", x, dim);
    if (start < 0 || length < 0 || length > x->shape.dim[dim] - start)
        return choir__poison(x->scope, CHOIR_ERR_SHAPE,
            "narrow: %lld entries from %lld on are outside dimension %d of %s",
            (long long)length, (long long)start, dim, choir__shape_text(x->shape));
    choir_tensor *y = choir__tensor_part(scope, x, dim, start, length);
    choir__tape_entry *r = choir__tape_entry_new(&narrow_op, y, &x, 1);
    struct slice a = {dim, start};
    if (r)
        choir__tape_entry_attrs(r, &a, sizeof a);
    return y;
}

/* --- cat and stack --- */

static void cat_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    int dim = *(const int *)r->attrs;
    int64_t start = 0;
    for (int i = 0; i < r->count; i++) {
        int64_t length = r->in[i]->shape.dim[dim];
        if (choir__wanted(r, i))
            sink->give(sink, r, i, choir__tensor_part(sink->scope, gy, dim, start, length));
        start += length;
    }
}

static void cat_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    int dim = *(const int *)r->attrs;
    int64_t start = 0;
    for (int i = 0; i < r->count; i++) {
        int64_t length = r->in[i]->shape.dim[dim];
        if (choir__wanted(r, i))
            gx[i] = choir_narrow(gy, dim, start, length);
        start += length;
    }
}

static void cat_again(choir__tape_entry *r)
{
    int dim = *(const int *)r->attrs;
    int64_t start = 0;
    for (int i = 0; i < r->count; i++) {
        int64_t length = r->in[i]->shape.dim[dim];
        choir__launch_copy(choir__tensor_part(r->scope, r->out, dim, start, length), r->in[i]);
        start += length;
    }
}

#define CAT                                                                                    \
    .name = "cat", .cast = CHOIR__CAST_WIDEST, .half = CHOIR__ALL_IN,                          \
    .half_native = CHOIR__ALL_IN, .backward = cat_backward, .derivative = cat_derivative,      \
    .recompute = cat_again
static const choir__op cat_op = {CAT}, cat_features_op = {CAT, .by_token = true};

/* Joins more parts than an op can have operands: first groups of them, then the groups. */
static choir_tensor *cat(const choir__op *op, choir_tensor *const *parts, int count, int dim);

static choir_tensor *cat_groups(
    const choir__op *op, choir_tensor *const *parts, int count, int dim)
{
    choir_tensor *joined[CHOIR__MAX_IN];
    int each = (count + CHOIR__MAX_IN - 1) / CHOIR__MAX_IN, groups = 0;
    for (int at = 0; at < count; at += each)
        joined[groups++] = cat(op, parts + at, each < count - at ? each : count - at, dim);
    choir_tensor *y = cat(op, joined, groups, dim);
    for (int i = 0; i < groups && each > 1; i++)
        choir__done_with(joined[i]);
    return y;
}

static choir_tensor *cat(const choir__op *op, choir_tensor *const *parts, int count, int dim)
{
    choir_tensor *poisoned, *in[CHOIR__MAX_IN];
    if (count > CHOIR__MAX_IN)
        return cat_groups(op, parts, count, dim);
    if (count > 0 && !parts) /* begun with no operands, which is an error */
        count = 0;
    if (count > 0)
        memcpy(in, parts, (size_t)count * sizeof *in);
    choir_scope *scope = choir__begin(op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__fix_dim(in[0], &dim))
        return choir__bad_dim("cat", in[0], dim);
    choir_shape shape = in[0]->shape;
    for (int i = 1; i < count; i++) {
        choir_shape other = in[i]->shape;
        shape.dim[dim] += other.ndim == shape.ndim ? other.dim[dim] : 0;
        other.dim[dim] = in[0]->shape.dim[dim];
        if (!choir__same_shape(other, in[0]->shape) || in[i]->dtype != in[0]->dtype)
            return choir__shape_error("cat", scope, in, count,
                "expected parts of one dtype that differ only in the joined dimension");
    }
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, shape);
    return choir__computed(op, y, in, count, (choir__keeps){&dim, sizeof dim, {NULL}});
}

choir_tensor *choir_cat(choir_tensor *const *parts, int count, int dim)
{
    return cat(&cat_op, parts, count, dim);
}

choir_tensor *choir__cat_features(choir_tensor *const *parts, int count, int dim)
{
    return cat(&cat_features_op, parts, count, dim);
}

choir_tensor *choir_stack(choir_tensor *const *parts, int count, int dim)
{
    choir_tensor *bad = count < 1 || !parts ? choir__unsound(NULL, "stack") : NULL;
    for (int i = 0; i < count && !bad; i++)
        bad = choir__is_sound(parts[i]) ? NULL : choir__unsound(parts[i], "stack");
    if (bad)
        return bad;
    choir_shape shape = parts[0]->shape;
    int at = dim < 0 ? dim + shape.ndim + 1 : dim;
    if (at < 0 || at > shape.ndim || shape.ndim == CHOIR_MAX_DIMS)
        return parts[0]->poisoned ? parts[0] : choir__bad_dim("stack", parts[0], dim);
    for (int i = 1; i < count; i++)
        if (!parts[0]->poisoned && !parts[i]->poisoned &&
            !choir__same_shape(parts[i]->shape, shape))
            return choir__shape_error("stack", parts[0]->scope,
                (choir_tensor *[]){parts[0], parts[i]}, 2, "expected parts of one shape");
    memmove(
        &shape.dim[at + 1], &shape.dim[at], (size_t)(shape.ndim++ - at) * sizeof shape.dim[0]);
    shape.dim[at] = 1;
    choir_tensor **rows = choir__calloc((size_t)count, sizeof(choir_tensor *));
    for (int i = 0; i < count; i++)
        rows[i] = choir_reshape(parts[i], shape);
    choir_tensor *y = choir_cat(rows, count, at);
    free(rows);
    return y;
}

/* --- split and chunk --- */

/* Makes `count` views of `size` entries each; the last may be shorter. */
static int views(choir_tensor *x, int dim, int64_t size, int64_t count, choir_tensor **parts)
{
    int64_t length = x->shape.dim[dim];
    for (int64_t i = 0; i < count; i++)
        parts[i] =
            choir_narrow(x, dim, i * size, i * size + size > length ? length - i * size : size);
    return (int)count;
}

int choir_split_dim(choir_tensor *x, int64_t size, int dim, choir_tensor **parts, int room)
{
    if (!parts || room < 1)
        return 0;
    parts[0] = x = choir__sound(x, "split");
    if (x->poisoned)
        return 1;
    if (!choir__fix_dim(x, &dim)) {
        parts[0] = choir__bad_dim("split", x, dim);
        return 1;
    }
    int64_t length = x->shape.dim[dim], count = 1;
    if (size >= 1 && length > size)
        count = (length - 1) / size + 1;
    if (size < 1)
        parts[0] = choir__poison(
            x->scope, CHOIR_ERR_ARGUMENT, "split: pieces of %lld entries", (long long)size);
    else if (count > room)
        parts[0] = choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "split: %s in pieces of %lld makes %lld of them, and there is room for %d",
            choir__shape_text(x->shape), (long long)size, (long long)count, room);
    else
        return views(x, dim, size, count, parts);
    return 1;
}

int choir_chunk(choir_tensor *x, int count, int dim, choir_tensor **parts)
{
    int at = dim;
    if (!parts)
        return 0;
    parts[0] = x = choir__sound(x, "chunk");
    if (x->poisoned)
        return 1;
    if (!choir__fix_dim(x, &at) || count < 1) {
        parts[0] = count < 1 ? choir__poison(
                                   x->scope, CHOIR_ERR_ARGUMENT, "chunk: into %d pieces", count)
                             : choir__bad_dim("chunk", x, dim);
        return 1;
    }
    int64_t length = x->shape.dim[at];
    return length ? choir_split_dim(x, (length - 1) / count + 1, at, parts, count)
                  : views(x, at, 0, count, parts);
}
