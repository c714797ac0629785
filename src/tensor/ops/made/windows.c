/* Ops on images that move pixels: instance norm by groups, pixels from channels, windows as
 * columns, and places between pixels. They are made of views and lookups. */

#include <choir/select.h>
#include <choir/volumes.h>

#include "tensor/autocast.h"
#include "tensor/ops/conv.h"
#include "tensor/ops/made/places.h"

choir_tensor *choir_instance_norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, float eps)
{
    return choir_group_norm(x, choir_tensor_size(x, 1), gamma, beta, eps);
}

#define MOVES(title)                                                                           \
    {                                                                                          \
        .name = title, .any_dtype = true, .composed = true                                     \
    }
static const choir__op shuffle_op = MOVES("pixel_shuffle"),
                       unshuffle_op = MOVES("pixel_unshuffle"), unfold_op = MOVES("unfold"),
                       fold_op = MOVES("fold");

choir_tensor *choir_pixel_shuffle(choir_tensor *x, int64_t r)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&shuffle_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    const int64_t *n = x->shape.dim;
    if (x->shape.ndim != 4 || r < 1 || n[1] % (r * r))
        return choir__shape_error(
            shuffle_op.name, scope, &x, 1, "expected images (N, C r^2, H, W)");
    int64_t c = n[1] / (r * r), h = n[2], w = n[3];
    choir_tensor *y = choir_reshape(x, choir_dims(n[0], c, r, r, h, w));
    y = choir_permute(y, choir_dims(0, 1, 4, 2, 5, 3));
    return choir_reshape(y, choir_dims(x->shape.dim[0], c, h * r, w * r));
}

choir_tensor *choir_pixel_unshuffle(choir_tensor *x, int64_t r)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&unshuffle_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    const int64_t *n = x->shape.dim;
    if (x->shape.ndim != 4 || r < 1 || n[2] % r || n[3] % r)
        return choir__shape_error(
            unshuffle_op.name, scope, &x, 1, "expected images (N, C, H r, W r)");
    int64_t c = n[1], h = n[2] / r, w = n[3] / r;
    choir_tensor *y = choir_reshape(x, choir_dims(n[0], c, h, r, w, r));
    y = choir_permute(y, choir_dims(0, 1, 3, 5, 2, 4));
    return choir_reshape(y, choir_dims(x->shape.dim[0], c * r * r, h, w));
}

/* --- windows --- */

typedef struct windows {
    int64_t h, w, kh, kw, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int64_t oh, ow; /* windows along each side */
} windows;

static int64_t or_else(int64_t width, int64_t height)
{
    return width ? width : height;
}

/* Returns whether there are windows of an image (h, w). */
static bool windows_of(
    windows *s, int64_t h, int64_t w, int64_t kh, int64_t kw, const choir_conv_opts *o)
{
    *s = (windows){.h = h, .w = w, .kh = kh, .kw = kw, .pad_h = o->padding};
    s->stride_h = or_else(o->stride, 1), s->stride_w = or_else(o->stride_w, s->stride_h);
    s->dilation_h = or_else(o->dilation, 1);
    s->dilation_w = or_else(o->dilation_w, s->dilation_h);
    s->pad_w = o->padding_w < 0 ? 0 : or_else(o->padding_w, o->padding);
    if (kh < 1 || kw < 1 || s->stride_h < 1 || s->stride_w < 1 || s->dilation_h < 1 ||
        s->dilation_w < 1 || s->pad_h < 0 || s->pad_w < 0)
        return false;
    s->oh = choir__conv_out(h, kh, s->stride_h, s->pad_h, s->dilation_h);
    s->ow = choir__conv_out(w, kw, s->stride_w, s->pad_w, s->dilation_w);
    return s->oh > 0 && s->ow > 0;
}

/* The row or column that each entry of each window reads: (kernel, 1) * dilation + (windows) *
 * stride, f64. */
static choir_tensor *lines(
    choir_tensor *x, int64_t kernel, int64_t dilation, int64_t count, int64_t stride)
{
    choir_device *device = choir__device_of(x);
    choir_tensor *k = choir_scale(choir__places(x->scope, device, kernel), (double)dilation);
    choir_tensor *at = choir_scale(choir__places(x->scope, device, count), (double)stride);
    return choir_add(choir_reshape(k, choir_dims(kernel, 1)), at);
}

/* Returns the place in a padded image of each entry of each window: (KH KW OH OW) i64. */
static choir_tensor *places_of(choir_tensor *x, const windows *s)
{
    choir_tensor *rows = lines(x, s->kh, s->dilation_h, s->oh, s->stride_h);
    choir_tensor *cols = lines(x, s->kw, s->dilation_w, s->ow, s->stride_w);
    rows = choir_scale(rows, (double)(s->w + 2 * s->pad_w));
    choir_tensor *at = choir_add(choir_reshape(rows, choir_dims(s->kh, 1, s->oh, 1)),
        choir_reshape(cols, choir_dims(1, s->kw, 1, s->ow)));
    return choir_cast(choir_reshape(at, choir_dims(-1)), CHOIR_I64);
}

choir_tensor *choir_unfold(
    choir_tensor *x, int64_t kernel_h, int64_t kernel_w, choir_conv_opts opts)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&unfold_op, &x, 1, &poisoned);
    windows s;
    if (!scope)
        return poisoned;
    if (x->shape.ndim != 4 ||
        !windows_of(&s, x->shape.dim[2], x->shape.dim[3], kernel_h, kernel_w, &opts))
        return choir__shape_error(unfold_op.name, scope, &x, 1,
            "expected images (N, C, H, W) of at least the kernel's size");
    int64_t n = x->shape.dim[0], c = x->shape.dim[1];
    choir_tensor *padded = choir_pad(x, (int64_t[]){s.pad_w, s.pad_w, s.pad_h, s.pad_h}, 4, 0);
    choir_tensor *y = choir_index_select(
        choir_reshape(padded, choir_dims(n, c, -1)), 2, places_of(padded, &s));
    return choir_reshape(y, choir_dims(n, c * s.kh * s.kw, s.oh * s.ow));
}

choir_tensor *choir_fold(choir_tensor *x, int64_t height, int64_t width, int64_t kernel_h,
    int64_t kernel_w, choir_conv_opts opts)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&fold_op, &x, 1, &poisoned);
    windows s;
    if (!scope)
        return poisoned;
    if (!choir__is_float(x->dtype) || x->shape.ndim != 3 ||
        !windows_of(&s, height, width, kernel_h, kernel_w, &opts) ||
        x->shape.dim[1] % (s.kh * s.kw) || x->shape.dim[2] != s.oh * s.ow)
        return choir__shape_error(fold_op.name, scope, &x, 1,
            "expected floating columns (N, C KH KW, windows), as choir_unfold makes them");
    int64_t n = x->shape.dim[0], c = x->shape.dim[1] / (s.kh * s.kw);
    int64_t h = height + 2 * s.pad_h, w = width + 2 * s.pad_w;
    choir_tensor *columns = choir_reshape(x, choir_dims(n, c, -1));
    choir_tensor *zeros =
        choir_to(choir_zeros(scope, x->dtype, choir_dims(n, c, h * w)), choir__device_of(x));
    choir_tensor *index = choir_expand(places_of(x, &s), choir_tensor_shape(columns));
    choir_tensor *image =
        choir_reshape(choir_scatter_add(zeros, 2, index, columns), choir_dims(n, c, h, w));
    return choir_pad(image, (int64_t[]){-s.pad_w, -s.pad_w, -s.pad_h, -s.pad_h}, 4, 0);
}
