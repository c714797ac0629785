/* Views: other shapes and strides over the same memory. Their backward is the inverse view. */
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"

choir_tensor *choir__begin_view(const choir__op *op, choir_tensor **x, choir_tensor **poisoned)
{
    choir_scope *scope = choir__begin(op, x, 1, poisoned);
    if (!scope)
        return NULL;
    /* A view of a parameter computes nothing: it may reside where the parameter does. */
    choir_tensor *view = choir__tensor_alias(scope, *x);
    view->split = NULL; /* the mark is about other dimensions */
    if ((*x)->split && (*x)->split->passes) {
        choir__partition *among = choir__arena_get(&scope->arena, sizeof *among);
        *among = *(*x)->split;
        among->among = true;
        view->split = among;
    }
    return view;
}

choir_tensor *choir__bad_dim(const char *op, choir_tensor *x, int dim)
{
    return choir__poison(x->scope, CHOIR_ERR_SHAPE, "%s: %s has no dimension %d", op,
        choir__shape_text(x->shape), dim);
}

bool choir__fix_dim(const choir_tensor *x, int *dim)
{
    int at = *dim < 0 ? *dim + x->shape.ndim : *dim;
    if (at < 0 || at >= x->shape.ndim)
        return false;
    *dim = at;
    return true;
}

/* --- reshape --- */

/* True if x can be seen in the shape where it is: it is row-major, or its rows, a few elements
 * apart as a product leaves them, stay rows. */
static bool keeps_rows(const choir_tensor *x, choir_shape shape)
{
    int last = shape.ndim - 1;
    return choir__is_contiguous(x) ||
           (last >= 0 && last < CHOIR_MAX_DIMS && x->shape.ndim &&
               shape.dim[last] == choir__cols(x) && choir__has_product_rows(x));
}

/* Gives y, a view of x, another shape. */
static void see_as(choir_tensor *y, const choir_tensor *x, choir_shape shape)
{
    int64_t row = choir__row_of(x);
    y->shape = shape;
    if (choir__is_contiguous(x))
        choir__set_row_major(y);
    else
        choir__set_rows(y, row);
}

static void reshape_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_shape shape = r->in[0]->shape;
    choir_tensor *rows = keeps_rows(gy, shape) ? gy : choir__dense_rows(sink->scope, gy);
    choir_tensor *g = choir__tensor_alias(sink->scope, rows);
    see_as(g, rows, shape);
    sink->give(sink, r, 0, g);
}

static const choir__op reshape_op = {.name = "reshape",
    .by_token = true,
    .any_dtype = true,
    .backward = reshape_backward,
    .view = true};

static bool infer(choir_shape *shape, int64_t count)
{
    int unknown = -1;
    int64_t known = 1;
    if (shape->ndim < 0 || shape->ndim > CHOIR_MAX_DIMS)
        return false;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape->dim[i] < 0)
            return false;
        else if (__builtin_mul_overflow(known, shape->dim[i], &known))
            return false;
    }
    if (unknown >= 0) {
        if (known == 0 || count % known)
            return false;
        shape->dim[unknown] = count / known;
        known = count;
    }
    return known == count;
}

choir_tensor *choir_reshape(choir_tensor *x, choir_shape shape)
{
    choir_tensor *poisoned;
    x = choir__sound(x, reshape_op.name);
    if (x->poisoned || !keeps_rows(x, shape))
        x = choir_contiguous(x);
    choir_tensor *y = choir__begin_view(&reshape_op, &x, &poisoned);
    if (!y)
        return poisoned;
    choir_shape asked = shape;
    if (shape.ndim < 0 || shape.ndim > CHOIR_MAX_DIMS)
        return choir__poison(x->scope, CHOIR_ERR_SHAPE, "reshape: %d dimensions; at most %d",
            shape.ndim, CHOIR_MAX_DIMS);
    if (!infer(&shape, x->count))
        return choir__poison(x->scope, CHOIR_ERR_SHAPE, "reshape: %s does not fit into %s",
            choir__shape_text(x->shape), choir__shape_text(asked));
    see_as(y, x, shape);
    choir__tape_entry_new(&reshape_op, y, &x, 1);
    return y;
}

choir_tensor *choir_flatten(choir_tensor *x, int first)
{
    x = choir__sound(x, "flatten");
    choir_shape shape = x->shape;
    if (first < 0)
        first += shape.ndim;
    if (first < 0)
        return choir__bad_dim("flatten", x, first);
    if (x->poisoned || first >= shape.ndim)
        return x;
    for (int i = first + 1; i < shape.ndim; i++)
        shape.dim[first] *= shape.dim[i];
    shape.ndim = first + 1;
    return choir_reshape(x, shape);
}

/* --- permute --- */

static void permute_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const choir_shape *order = r->attrs;
    choir_tensor *g = choir__tensor_alias(sink->scope, gy);
    for (int i = 0; i < order->ndim; i++) {
        g->shape.dim[order->dim[i]] = gy->shape.dim[i];
        g->stride[order->dim[i]] = gy->stride[i];
    }
    sink->give(sink, r, 0, g);
}

static const choir__op permute_op = {.name = "permute",
    .by_token = true,
    .any_dtype = true,
    .backward = permute_backward,
    .view = true};

choir_tensor *choir_permute(choir_tensor *x, choir_shape order)
{
    choir_tensor *poisoned, *y = choir__begin_view(&permute_op, &x, &poisoned);
    if (!y)
        return poisoned;
    unsigned seen = 0;
    for (int i = 0; i < order.ndim && order.ndim == x->shape.ndim; i++)
        if (order.dim[i] >= 0 && order.dim[i] < order.ndim)
            seen |= 1u << order.dim[i];
    if (order.ndim != x->shape.ndim || seen != (1u << order.ndim) - 1)
        return choir__poison(x->scope, CHOIR_ERR_SHAPE,
            "permute: %s is no order of the dimensions of %s", choir__shape_text(order),
            choir__shape_text(x->shape));
    for (int i = 0; i < order.ndim; i++) {
        y->shape.dim[i] = x->shape.dim[order.dim[i]];
        y->stride[i] = x->stride[order.dim[i]];
    }
    choir__tape_entry *r = choir__tape_entry_new(&permute_op, y, &x, 1);
    if (r)
        choir__tape_entry_attrs(r, &order, sizeof order);
    return y;
}

choir_tensor *choir_transpose(choir_tensor *x, int dim0, int dim1)
{
    x = choir__sound(x, "transpose");
    choir_shape order = {.ndim = x->shape.ndim};
    if (x->poisoned)
        return x;
    if (!choir__fix_dim(x, &dim0))
        return choir__bad_dim("transpose", x, dim0);
    if (!choir__fix_dim(x, &dim1))
        return choir__bad_dim("transpose", x, dim1);
    for (int i = 0; i < order.ndim; i++)
        order.dim[i] = i == dim0 ? dim1 : i == dim1 ? dim0 : i;
    return choir_permute(x, order);
}

/* --- copies into another order, dtype or device --- */

/* A 16-bit gradient that others of the f32 operand precede is added to them in one pass, on
 * devices that can; else it is first widened. */
static void copy_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->in[0], *given = NULL;
    if (gy->dtype == x->dtype) {
        sink->give(sink, r, 0, gy);
        return;
    }
    bool adds = x->dtype == CHOIR_F32 && choir__is_half(gy->dtype) &&
                choir__is_contiguous(gy) && choir__device_of(x)->half &&
                choir__device_of(gy) == choir__device_of(x);
    choir_tensor *gx = adds ? sink->dest_onto(sink, r, 0, &given) : sink->dest(sink, r, 0);
    if (!gx)
        return;
    if (!given && !x->param && choir__is_dense(gy)) /* images keep their channels last */
        memcpy(gx->stride, gy->stride, sizeof gx->stride);
    if (given)
        choir__launch_add(gx, given, gy);
    else
        choir__launch_copy(gx, gy);
    sink->give(sink, r, 0, gx);
}

static void to_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->in[0], *gx;
    if (x->param && (gx = sink->dest(sink, r, 0))) { /* directly where its gradient is stored */
        choir__copy_across(gx, gy);
    } else { /* with gy's layout */
        gx = choir__copied_to(sink->scope, gy, choir__device_of(x));
        gx->grad_owned = true;
    }
    sink->give(sink, r, 0, gx);
}

static void copy_again(choir__tape_entry *r)
{
    choir__launch_copy(r->out, r->in[0]);
}

static const choir__op contiguous_op = {.name = "contiguous",
    .by_token = true,
    .tokens_in = 1,
    .any_dtype = true,
    .backward = copy_backward,
    .recompute = copy_again};
const choir__op choir__cast_op = {.name = "cast",
    .by_token = true,
    .tokens_in = 1,
    .any_dtype = true,
    .backward = copy_backward,
    .recompute = copy_again};
/* Casts a result that is cheap to compute again: the result and the cast together are still
 * cheap. */
const choir__op choir__recast_op = {.name = "cast",
    .by_token = true,
    .tokens_in = 1,
    .any_dtype = true,
    .backward = copy_backward,
    .recompute = copy_again,
    .cheap = true,
    .along = true};
/* Makes the f32 copy of a 16-bit operand. The copy is made again from the operand, so that must
 * stay. */
const choir__op choir__widen_op = {.name = "cast",
    .by_token = true,
    .tokens_in = 1,
    .any_dtype = true,
    .backward = copy_backward,
    .recompute = copy_again,
    .cheap = true,
    .reads_in = 1};
/* Copies to a device. The copy is kept, not made again, so that no device waits for one that is
 * further ahead. */
const choir__op choir__to_op = {.name = "to",
    .by_token = true,
    .any_dtype = true,
    .backward = to_backward,
    .slices_in = 1,
    .tokens_in = 1};

choir_tensor *choir_contiguous(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&contiguous_op, &x, 1, &poisoned);
    if (!scope || choir__is_contiguous(x))
        return scope ? x : poisoned;
    choir_tensor *y = choir__dense_rows(scope, x);
    choir__tape_entry_new(&contiguous_op, y, &x, 1);
    return y;
}

choir_tensor *choir_cast(choir_tensor *x, choir_dtype dtype)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&choir__cast_op, &x, 1, &poisoned);
    if (!scope || x->dtype == dtype)
        return scope ? x : poisoned;
    return choir__cast_in_place(scope, x, dtype);
}

choir_tensor *choir__copied_to(choir_scope *scope, choir_tensor *x, choir_device *device)
{
    choir_tensor *y = choir__tensor_bare(scope, x->dtype, x->shape);
    if (choir__is_dense(x))
        memcpy(y->stride, x->stride, sizeof y->stride);
    y->for_products = x->for_products;
    if (choir__tensor_allocate(y, device))
        choir__copy_across(y, x);
    return y;
}

choir_tensor *choir_to(choir_tensor *x, choir_device *device)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&choir__to_op, &x, 1, &poisoned);
    if (!scope || choir__device_of(x) == device)
        return scope ? x : poisoned;
    if (!device)
        return choir__poison(scope, CHOIR_ERR_DEVICE, "to: %s", choir__missing_device());
    choir_tensor *y = choir__copied_to(scope, x, device);
    if (!y->poisoned)
        y->split = x->split;
    choir__tape_entry_new(&choir__to_op, y, &x, 1);
    return y;
}

/* --- keep and in --- */

choir_tensor *choir_keep(choir_scope *scope, choir_tensor *t)
{
    scope = choir__open_scope(scope, __func__);
    t = choir__sound(t, __func__);
    if (scope->run->lost)
        return scope->run->lost;
    choir__bring_back(t);
    choir_tensor *kept = choir__tensor_alias(scope, t);
    kept->kept =
        true; /* backward does not free it, even if a hook kept it in the scope being walked */
    if (t->poisoned && choir__scope_status(t->scope) != CHOIR_OK)
        choir__scope_fail(scope, choir__scope_status(t->scope));
    return kept;
}

static void pass_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    sink->give(sink, r, 0, gy);
}

static const choir__op in_op = {.name = "in",
    .by_token = true,
    .any_dtype = true,
    .backward = pass_backward,
    .view = true,
    .tokens_in = 1};

choir_tensor *choir_in(choir_scope *scope, choir_tensor *t)
{
    scope = choir__open_scope(scope, __func__);
    t = choir__sound(t, __func__);
    choir__bring_back(t);
    if (t->param && !t->poisoned && !choir__placed(scope, in_op.name, &t, 1)) {
        choir_tensor *none = choir__tensor_bare(scope, t->dtype, t->shape);
        none->poisoned = true;
        return none;
    }
    choir_tensor *lifted = choir__tensor_alias(scope, t);
    for (choir_scope *s = scope; s != t->scope; s = s->parent)
        if (!s)
            return choir__poison(scope, CHOIR_ERR_SCOPE,
                "choir_in: the tensor's scope does not enclose this one");
    if (t->freed && !t->poisoned)
        return choir__poison(scope, CHOIR_ERR_STATE,
            "choir_in: backward has freed this tensor; choir_keep it before");
    choir__tape_entry_new(&in_op, lifted, &t, 1);
    return lifted;
}

choir_tensor *choir__derive_in(const choir__tape_entry *r, int i, const choir_tensor *gy)
{
    choir_tensor *t = r->in[i];
    return t->scope->kind == CHOIR__RUN ? choir_in(gy->scope, t) : t;
}
