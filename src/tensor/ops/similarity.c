/* The cosine of the angle between vectors, made of other ops. */
#include <math.h>

#include <choir/select.h>

#include "tensor/autocast.h"

static const choir__op similarity_op = {.name = "cosine_similarity",
    .composed = true,
    .cast = CHOIR__CAST_WIDEST,
    .half = 3,
    .half_native = 3};

static choir_tensor *at_least(choir_tensor *norm, double eps)
{
    return choir_clamp(norm, eps, INFINITY);
}

choir_tensor *choir_cosine_similarity(choir_tensor *x, choir_tensor *y, int dim, double eps)
{
    choir_tensor *in[2] = {x, y}, *poisoned;
    choir_scope *scope = choir__begin(&similarity_op, in, 2, &poisoned);
    choir_shape shape;
    if (!scope)
        return poisoned;
    choir_dtype dtype = in[0]->dtype;
    if (!choir__is_float(dtype) || in[1]->dtype != dtype)
        return choir__shape_error(
            similarity_op.name, scope, in, 2, "expected one floating dtype");
    if (!choir__broadcast(in[0]->shape, in[1]->shape, &shape))
        return choir__shape_error(
            similarity_op.name, scope, in, 2, "expected shapes that broadcast");
    for (int i = 0; i < 2; i++) {
        in[i] = choir__is_half(dtype) ? choir_cast(in[i], CHOIR_F32) : in[i];
        in[i] = choir__same_shape(in[i]->shape, shape) ? in[i] : choir_expand(in[i], shape);
    }
    choir_tensor *a = at_least(choir_norm_dim(in[0], 2, dim, false), eps);
    choir_tensor *b = at_least(choir_norm_dim(in[1], 2, dim, false), eps);
    choir_tensor *both = choir_sum_dim(choir_mul(in[0], in[1]), dim);
    choir_tensor *cosine = choir_div(choir_div(both, a), b);
    return choir__is_half(dtype) && !scope->autocast.on ? choir_cast(cosine, dtype) : cosine;
}
