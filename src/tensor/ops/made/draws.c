/* Random choices: draws that are compared with probabilities. They are made of other ops, and
 * their numbers are choir_rand's. */

#include <choir/make.h>
#include <choir/select.h>

#include "base/floats.h"
#include "tensor/handle.h"
#include "tensor/op.h"

enum { WIDEST = 1 << 24 }; /* different values of a draw */

choir_tensor *choir_randint(
    choir_scope *scope, choir_shape shape, const char *name, int64_t low, int64_t high)
{
    CHOIR__DEFAULT_FLOATS;
    scope = choir__open_scope(scope, __func__);
    int64_t count;
    if (__builtin_sub_overflow(high, low, &count) || count < 1 || count > WIDEST)
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "randint: expected a range of 1 to %d numbers, got [%lld, %lld)", WIDEST,
            (long long)low, (long long)high);
    choir_tensor *u = choir_cast(choir_rand(scope, shape, name, 0, 1), CHOIR_F64);
    choir_tensor *drawn = choir_floor(choir_scale(u, (double)count));
    return choir_cast(choir_affine(drawn, 1, (double)low), CHOIR_I64);
}

/* Returns f32 draws in [0, 1) on x's device. */
static choir_tensor *draws_beside(choir_tensor *x, choir_shape shape, const char *name)
{
    return choir_to(choir_rand(x->scope, shape, name, 0, 1), choir__device_of(x));
}

static const choir__op bernoulli_op = {
    .name = "bernoulli", .any_dtype = true, .composed = true};
static const choir__op multinomial_op = {
    .name = "multinomial", .any_dtype = true, .composed = true};

choir_tensor *choir_bernoulli(choir_tensor *p, const char *name)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&bernoulli_op, &p, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_dtype dtype = p->dtype;
    if (!choir__is_float(dtype))
        return choir__shape_error(
            bernoulli_op.name, scope, &p, 1, "expected floating probabilities");
    choir_tensor *u = draws_beside(p, p->shape, name);
    return choir_cast(choir_lt(u, choir_cast(p, CHOIR_F32)), dtype);
}

/* The entries with the greatest log weight + Gumbel draws are drawn in proportion to the
 * weights (Gumbel, 1954), and without replacement in order. */
choir_tensor *choir_multinomial(
    choir_tensor *weights, int64_t draws, bool replacement, const char *name)
{
    choir_tensor *poisoned, *index = NULL;
    choir_scope *scope = choir__begin(&multinomial_op, &weights, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = weights->shape;
    int last = shape.ndim - 1;
    if (last < 0 || !choir__is_float(weights->dtype) || shape.dim[last] < 1 ||
        (replacement && shape.ndim == CHOIR_MAX_DIMS))
        return choir__shape_error(multinomial_op.name, scope, &weights, 1,
            "expected floating weights (..., C) of at least one entry");
    if (draws < 1 || (!replacement && draws > shape.dim[last]))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "multinomial: expected 1 to %lld draws%s, got %lld",
            (long long)(replacement ? INT64_MAX : shape.dim[last]),
            replacement ? "" : " without replacement", (long long)draws);
    bool grad = choir_set_grad(scope, false);
    choir_tensor *logs = choir_log(choir_cast(weights, CHOIR_F32));
    if (replacement) {
        choir_shape each = shape;
        each.dim[last] = 1;
        each.dim[each.ndim++] = shape.dim[last];
        logs = choir_reshape(logs, each);
        each.dim[last] = draws;
        shape = each;
    }
    choir_tensor *u = draws_beside(weights, shape, name);
    choir_tensor *gumbel = choir_neg(choir_log(choir_neg(choir_log(u))));
    choir_tensor *scores = choir_add(gumbel, logs);
    if (replacement)
        index = choir_argmax_dim(scores, -1, false);
    else
        choir_topk(scores, draws, -1, true, &index);
    choir_set_grad(scope, grad);
    return index;
}
