/* Padding: a larger tensor of one value, and a copy of x in it. Negative widths cut. */
#include <choir/select.h>

#include "tensor/launch.h"
#include "tensor/op.h"

#define WIDEST ((int64_t)1 << 60)

struct pad {
    int64_t before[CHOIR_MAX_DIMS], after[CHOIR_MAX_DIMS]; /* along each dimension */
    double value;
};

/* Returns a view of `whole` without its first `before` and last `after` entries along each
 * dimension, or with all of them where the number is negative. */
static choir_tensor *inner(
    choir_scope *scope, choir_tensor *whole, const struct pad *p, int sign)
{
    choir_tensor *view = choir__tensor_alias(scope, whole);
    for (int d = 0; d < view->shape.ndim; d++) {
        int64_t before = sign * p->before[d], after = sign * p->after[d];
        view->offset += (before > 0 ? before : 0) * view->stride[d];
        view->shape.dim[d] -= (before > 0 ? before : 0) + (after > 0 ? after : 0);
    }
    view->count = choir__shape_count(view->shape);
    return view;
}

static void pad_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const struct pad *p = r->attrs;
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    choir__launch_fill(g, 0);
    choir__launch_copy(inner(sink->scope, g, p, -1), inner(sink->scope, gy, p, 1));
    sink->give(sink, r, 0, g);
}

static void pad_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const struct pad *p = r->attrs;
    int64_t widths[2 * CHOIR_MAX_DIMS];
    int ndim = gy->shape.ndim;
    for (int d = 0; d < ndim; d++) {
        widths[2 * (ndim - 1 - d)] = -p->before[d];
        widths[2 * (ndim - 1 - d) + 1] = -p->after[d];
    }
    gx[0] = choir_pad(gy, widths, 2 * ndim, 0);
}

static void pad_again(choir__tape_entry *r)
{
    const struct pad *p = r->attrs;
    choir__launch_fill(r->out, p->value);
    choir__launch_copy(inner(r->scope, r->out, p, 1), inner(r->scope, r->in[0], p, -1));
}

static const choir__op pad_op = {.name = "pad",
    .any_dtype = true,
    .backward = pad_backward,
    .derivative = pad_derivative,
    .recompute = pad_again};

static bool is_width(int64_t width)
{
    return width >= -WIDEST && width <= WIDEST;
}

choir_tensor *choir_pad(choir_tensor *x, const int64_t *widths, int count, double value)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&pad_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__holds(x->dtype, value))
        return choir__bad_value(scope, pad_op.name, x->dtype, value);
    struct pad p = {.value = value};
    if (count < 0 || count % 2 || count / 2 > x->shape.ndim || (count && !widths))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "pad: expected two widths for each of at most %d dimensions, got %d widths%s",
            x->shape.ndim, count, widths ? "" : " at NULL");
    choir_shape shape = x->shape;
    for (int i = 0; i < count / 2; i++) {
        int d = shape.ndim - 1 - i; /* the last dimension first */
        p.before[d] = widths[2 * i];
        p.after[d] = widths[2 * i + 1];
        if (!is_width(p.before[d]) || !is_width(p.after[d]))
            return choir__poison(scope, CHOIR_ERR_ARGUMENT,
                "pad: expected widths of at most 2^60, got %lld and %lld of dimension %d",
                (long long)p.before[d], (long long)p.after[d], d);
        int64_t cut = (p.before[d] < 0 ? p.before[d] : 0) + (p.after[d] < 0 ? p.after[d] : 0);
        if (shape.dim[d] + cut < 0)
            return choir__poison(scope, CHOIR_ERR_SHAPE,
                "pad: dimension %d of %s cannot lose %lld entries", d,
                choir__shape_text(x->shape), (long long)-cut);
        shape.dim[d] += p.before[d] + p.after[d];
    }
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    return choir__computed(&pad_op, y, &x, 1, (choir__keeps){&p, sizeof p, {NULL}});
}
