/* Images at places between their pixels: each place is the weighted sum of the pixels around
 * it, which are looked up. The gradient of the places comes from the weights. */

#include <choir/select.h>
#include <choir/volumes.h>

#include "tensor/autocast.h"
#include "tensor/op.h"

static const choir__op sample_op = {.name = "grid_sample",
    .composed = true,
    .cast = CHOIR__CAST_WIDEST,
    .half = 3,
    .half_native = 3};

/* Returns one coordinate of all places, (N, 1, places), in pixels from 0 to size - 1. */
static choir_tensor *in_pixels(
    choir_tensor *grid, int which, int64_t size, bool border, bool corners)
{
    int64_t n = grid->shape.dim[0];
    choir_tensor *g = choir_narrow(choir_reshape(grid, choir_dims(n, -1, 2)), 2, which, 1);
    double half = (double)(corners ? size - 1 : size) / 2;
    g = choir_affine(choir_reshape(g, choir_dims(n, 1, -1)), half, corners ? half : half - 0.5);
    return border ? choir_clamp(g, 0, (double)(size - 1)) : g;
}

/* 1 where a pixel exists, of its number's dtype */
static choir_tensor *exists(choir_tensor *pixel, int64_t size)
{
    choir_tensor *inside = choir_logical_and(
        choir_compare(pixel, CHOIR_GE, 0), choir_compare(pixel, CHOIR_LE, (double)(size - 1)));
    return choir_cast(inside, pixel->dtype);
}

/* The values (N, C, places) at whole rows and columns (N, 1, places); the edge's beyond it. */
static choir_tensor *pixels_at(choir_tensor *x, choir_tensor *row, choir_tensor *column)
{
    int64_t n = x->shape.dim[0], c = x->shape.dim[1], h = x->shape.dim[2], w = x->shape.dim[3];
    choir_tensor *i = choir_cast(choir_clamp(row, 0, (double)(h - 1)), CHOIR_F64);
    choir_tensor *j = choir_cast(choir_clamp(column, 0, (double)(w - 1)), CHOIR_F64);
    choir_tensor *at = choir_cast(choir_add(choir_scale(i, (double)w), j), CHOIR_I64);
    choir_shape all = choir_dims(n, c, choir_tensor_size(at, 2));
    return choir_gather_dim(
        choir_reshape(x, choir_dims(n, c, h * w)), 2, choir_expand(at, all));
}

static choir_tensor *nearest(choir_tensor *x, choir_tensor *row, choir_tensor *column)
{
    choir_tensor *i = choir_round(row), *j = choir_round(column);
    choir_tensor *inside = choir_mul(exists(i, x->shape.dim[2]), exists(j, x->shape.dim[3]));
    return choir_mul(pixels_at(x, i, j), inside);
}

static choir_tensor *bilinear(choir_tensor *x, choir_tensor *row, choir_tensor *column)
{
    choir_tensor *i = choir_floor(row), *j = choir_floor(column), *sum = NULL;
    choir_tensor *down = choir_sub(row, i), *right = choir_sub(column, j);
    for (int corner = 0; corner < 4; corner++) {
        bool lower = corner / 2, righter = corner % 2;
        choir_tensor *at_i = choir_affine(i, 1, lower), *at_j = choir_affine(j, 1, righter);
        choir_tensor *weight = choir_mul(lower ? down : choir_affine(down, -1, 1),
            righter ? right : choir_affine(right, -1, 1));
        choir_tensor *inside =
            choir_mul(exists(at_i, x->shape.dim[2]), exists(at_j, x->shape.dim[3]));
        choir_tensor *term = choir_mul(pixels_at(x, at_i, at_j), choir_mul(weight, inside));
        sum = sum ? choir_add(sum, term) : term;
    }
    return sum;
}

choir_tensor *choir_grid_sample(choir_tensor *x, choir_tensor *grid, choir_interpolation how,
    bool border, bool align_corners)
{
    choir_tensor *in[2] = {x, grid}, *poisoned;
    choir_scope *scope = choir__begin(&sample_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape s = in[0]->shape, g = in[1]->shape;
    choir_dtype dtype = in[0]->dtype;
    if (!choir__is_float(dtype) || in[1]->dtype != dtype || s.ndim != 4 || g.ndim != 4 ||
        s.dim[0] != g.dim[0] || g.dim[3] != 2 || s.dim[2] < 1 || s.dim[3] < 1)
        return choir__shape_error(sample_op.name, scope, in, 2,
            "expected images (N, C, H, W) and places (N, OH, OW, 2) of one floating dtype");
    if (how != CHOIR_LINEAR && how != CHOIR_NEAREST)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "grid_sample: expected CHOIR_LINEAR or CHOIR_NEAREST, got %d", (int)how);
    for (int i = 0; i < 2 && choir__is_half(dtype); i++)
        in[i] = choir_cast(in[i], CHOIR_F32);
    choir_tensor *column = in_pixels(in[1], 0, s.dim[3], border, align_corners);
    choir_tensor *row = in_pixels(in[1], 1, s.dim[2], border, align_corners);
    choir_tensor *y =
        how == CHOIR_LINEAR ? bilinear(in[0], row, column) : nearest(in[0], row, column);
    y = choir_reshape(y, choir_dims(s.dim[0], s.dim[1], g.dim[1], g.dim[2]));
    return choir__is_half(dtype) && !scope->autocast.on ? choir_cast(y, dtype) : y;
}
