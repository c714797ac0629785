/* Powers whose exponents are a tensor: d a^b = b a^(b-1) da + a^b log(a) db. */
#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"

static choir_tensor *values_of(choir_scope *scope, choir_tensor *a, choir_tensor *b)
{
    choir_shape shape;
    choir__broadcast(a->shape, b->shape, &shape);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(a), a->dtype, shape);
    if (!y->poisoned)
        choir__launch_binary(y, CHOIR__POWER, a, b);
    return y;
}

/* Gives gy times `slope`, which is 0 where `flat` holds, even if it is infinite or NaN there.
 */
static void give_slope(choir__tape_entry *r, int i, choir_tensor *gy, choir_tensor *slope,
    choir_tensor *flat, choir__sink *sink)
{
    choir_tensor *g = choir_mul(gy, choir_masked_fill(slope, flat, 0));
    if (!g->poisoned)
        choir__give_summed(r, i, g, sink);
}

static void power_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *a = choir_in(sink->scope, r->in[0]), *b = choir_in(sink->scope, r->in[1]);
    if (choir__wanted(r, 0)) {
        choir_tensor *less = choir_affine(b, 1, -1);
        choir_tensor *slope = choir_mul(b, values_of(sink->scope, a, less));
        give_slope(r, 0, gy, slope, choir_compare(b, CHOIR_EQ, 0), sink);
    }
    if (choir__wanted(r, 1)) {
        choir_tensor *slope = choir_mul(r->saved[0], choir_log(a));
        choir_tensor *flat =
            choir_logical_and(choir_compare(a, CHOIR_EQ, 0), choir_compare(b, CHOIR_GE, 0));
        give_slope(r, 1, gy, slope, flat, sink);
    }
}

static void power_again(choir__tape_entry *r)
{
    choir__launch_binary(r->out, CHOIR__POWER, r->in[0], r->in[1]);
}

static const choir__op power_op = {.name = "pow",
    .by_token = true,
    .cast = CHOIR__CAST_F32,
    .half_native = CHOIR__ALL_IN,
    .backward = power_backward,
    .recompute = power_again,
    .reads_in = 3};

choir_tensor *choir_pow_tensor(choir_tensor *a, choir_tensor *b)
{
    choir_tensor *in[2] = {a, b}, *poisoned;
    choir_scope *scope = choir__begin(&power_op, in, 2, &poisoned);
    choir_shape shape;
    if (!scope)
        return poisoned;
    if (in[0]->dtype != in[1]->dtype || !choir__is_float(in[0]->dtype))
        return choir__shape_error(
            power_op.name, scope, in, 2, "expected two floating tensors of one dtype");
    if (!choir__broadcast(in[0]->shape, in[1]->shape, &shape) || shape.ndim > CHOIR_MAX_DIMS)
        return choir__shape_error(
            power_op.name, scope, in, 2, "expected shapes that broadcast");
    choir_tensor *y = values_of(scope, in[0], in[1]);
    return choir__taped(&power_op, y, in, 2, (choir__keeps){.saved = {y}});
}
