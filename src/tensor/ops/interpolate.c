/* Images of another size, one dimension after another: each new entry is a sum of a few old
 * ones with weights that depend on its place. Images are channels-last. */
#include <choir/volumes.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"

struct stretch {
    int dim;
    choir__stretch how;
    bool corners;
};

static choir_tensor *new_image(choir_scope *scope, const choir_tensor *like, choir_shape shape)
{
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(like), like->dtype, shape);
    choir__set_channels_last(y);
    return y;
}

/* Computes y from x, or x's gradient, y, from y's gradient, x (back). Both are channels-last.
 */
static void launch_stretch(
    choir_tensor *y, const choir_tensor *x, const struct stretch *s, bool back)
{
    choir__k_stretch args = {.x = choir__data(x),
        .y = choir__data(y),
        .outer = x->shape.dim[0],
        .from = (back ? y : x)->shape.dim[s->dim],
        .to = (back ? x : y)->shape.dim[s->dim],
        .inner = x->shape.dim[1],
        .how = s->how,
        .corners = s->corners,
        .back = back,
        .dtype = x->dtype};
    for (int d = 2; d < x->shape.ndim; d++)
        if (d < s->dim)
            args.outer *= x->shape.dim[d];
        else if (d > s->dim)
            args.inner *= x->shape.dim[d];
    choir__launch(choir__device_of(x), x->dtype, stretch, &args);
}

static void stretch_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g = new_image(sink->scope, gy, r->in[0]->shape);
    gy = choir__channels_last(sink->scope, gy);
    if (g->poisoned || gy->poisoned)
        return;
    launch_stretch(g, gy, r->attrs, true);
    g->grad_owned = true;
    sink->give(sink, r, 0, g);
}

static void stretch_again(choir__tape_entry *r)
{
    choir_tensor *image = choir__channels_last(r->scope, r->in[0]);
    if (!image->poisoned)
        launch_stretch(r->out, image, r->attrs, false);
}

static const choir__op stretch_op = {.name = "interpolate",
    .half_native = CHOIR__ALL_IN,
    .backward = stretch_backward,
    .recompute = stretch_again};

static choir_tensor *stretched(choir_tensor *x, struct stretch s, int64_t size)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&stretch_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = x->shape;
    shape.dim[s.dim] = size;
    choir_tensor *y = new_image(scope, x, shape);
    return choir__computed(&stretch_op, y, &x, 1, (choir__keeps){&s, sizeof s, {NULL}});
}

choir_tensor *choir_interpolate(choir_tensor *x, const int64_t *sizes, int count,
    choir_interpolation how, bool align_corners)
{
    static const choir__op begun = {.name = "interpolate", .any_dtype = true};
    static const choir__stretch ways[] = {[CHOIR_NEAREST] = CHOIR__STRETCH_NEAREST,
        [CHOIR_LINEAR] = CHOIR__STRETCH_LINEAR,
        [CHOIR_CUBIC] = CHOIR__STRETCH_CUBIC};
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&begun, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if ((unsigned)how >= CHOIR_COUNT(ways) || (how == CHOIR_NEAREST && align_corners))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "interpolate: expected CHOIR_NEAREST without align_corners, CHOIR_LINEAR or "
            "CHOIR_CUBIC, got interpolation %d%s",
            (int)how, align_corners ? " with align_corners" : "");
    bool fits = choir__is_float(x->dtype) && count >= 1 && count == x->shape.ndim - 2;
    for (int i = 0; fits && i < count; i++)
        fits = sizes[i] > 0 && x->shape.dim[i + 2] > 0;
    if (!fits)
        return choir__shape_error(begun.name, scope, &x, 1,
            "expected a floating (N, C, ...) that is not empty, and for each dimension after "
            "the second a size above 0");
    for (int i = 0; i < count && !x->poisoned; i++)
        if (sizes[i] != x->shape.dim[i + 2])
            x = stretched(x, (struct stretch){i + 2, ways[how], align_corners}, sizes[i]);
    return x;
}
