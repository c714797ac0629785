/* Functions of one element: one function each, and one kernel for all of them. */
#include <math.h>
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/strategy.h"

/* saved: y for the ops whose backward is cheaper from y, else x; both have one memory order */
static void unary_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const choir__unary *u = r->attrs;
    choir_tensor *t = r->saved[0], *gx = sink->dest(sink, r, 0);
    if (!gx)
        return;
    if (!choir__same_layout(gy, t)) { /* flat memory in t's order */
        choir_tensor *g = choir__tensor_like(sink->scope, t);
        choir__launch_copy(g, gy);
        gy = g;
    }
    choir_tensor *out = choir__same_layout(gx, t) ? gx : choir__tensor_like(sink->scope, t);
    choir__k_unary_backward args = {.x = choir__data(t),
        .y = choir__data(t),
        .gy = choir__data(gy),
        .gx = choir__data(out),
        .n = t->count,
        .a = u->a,
        .b = u->b,
        .op = u->op,
        .dtype = t->dtype};
    choir__launch(choir__device_of(t), t->dtype, unary_backward, &args);
    sink->give(sink, r, 0, out);
}

static void unary_again(choir__tape_entry *r)
{
    const choir__unary *u = r->attrs;
    choir_tensor *y = r->out;
    choir__k_unary args = {.x = choir__data(r->in[0]),
        .y = choir__data(y),
        .n = y->count,
        .a = u->a,
        .b = u->b,
        .op = u->op,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, unary, &args);
}

/* An op, and its entry if the result is rounded to 16 bits (`rounded`). Backward reads x, or y
 * if that is cheaper (FROM_Y). Of a rounded result only the 16 bits are kept, and y is computed
 * again. */
struct unary_ops {
    choir__op op, rounded;
};

#define OP(title, ...)                                                                         \
    {                                                                                          \
        .name = title, .by_token = true, .tokens_in = 1, .backward = unary_backward,           \
        .recompute = unary_again, __VA_ARGS__                                                  \
    }
#define FROM_X(title, ...)                                                                     \
    {                                                                                          \
        .op = OP(title, .cheap = true, .reads_in = 1, .half_here = true, __VA_ARGS__)          \
    }
#define FROM_Y(title, ...)                                                                     \
    {                                                                                          \
        .op = OP(title, __VA_ARGS__), .rounded = OP(title, .cheap = true, __VA_ARGS__)         \
    }
#define AS_IT_COMES .half_native = CHOIR__ALL_IN
#define IN_F32      .cast = CHOIR__CAST_F32, .half_native = CHOIR__ALL_IN

static const struct unary_ops unary_ops[CHOIR__UNARY_COUNT] = {
    [CHOIR__NEG] = FROM_X("neg", AS_IT_COMES),
    [CHOIR__EXP] = FROM_Y("exp", IN_F32),
    [CHOIR__LOG] = FROM_X("log", IN_F32),
    [CHOIR__SQRT] = FROM_Y("sqrt", AS_IT_COMES),
    [CHOIR__TANH] = FROM_Y("tanh", AS_IT_COMES, .slices_in = 1),
    [CHOIR__SIGMOID] = FROM_Y("sigmoid", AS_IT_COMES),
    [CHOIR__RELU] = FROM_Y("relu", AS_IT_COMES, .half_here = true), /* exact in 16 bits */
    [CHOIR__GELU] = FROM_X("gelu", AS_IT_COMES),
    [CHOIR__GELU_TANH] = FROM_X("gelu_tanh", AS_IT_COMES),
    [CHOIR__SILU] = FROM_X("silu", AS_IT_COMES),
    [CHOIR__SQUARE] = FROM_X("square", IN_F32),
    [CHOIR__ABS] = FROM_X("abs", AS_IT_COMES),
    [CHOIR__SIN] = FROM_X("sin", AS_IT_COMES),
    [CHOIR__COS] = FROM_X("cos", AS_IT_COMES),
    [CHOIR__SIGN] = FROM_X("sign", AS_IT_COMES),
    [CHOIR__FLOOR] = FROM_X("floor", AS_IT_COMES),
    [CHOIR__CEIL] = FROM_X("ceil", AS_IT_COMES),
    [CHOIR__ROUND] = FROM_X("round", AS_IT_COMES),
    [CHOIR__LOG1P] = FROM_X("log1p", IN_F32),
    [CHOIR__EXPM1] = FROM_X("expm1", IN_F32),
    [CHOIR__ERF] = FROM_X("erf", AS_IT_COMES),
    [CHOIR__AFFINE] = FROM_X("affine", AS_IT_COMES, .slices_in = 1),
    [CHOIR__POW] = FROM_X("pow", IN_F32),
    [CHOIR__CLAMP] = FROM_X("clamp", AS_IT_COMES),
    [CHOIR__LEAKY] = FROM_X("leaky_relu", AS_IT_COMES),
    [CHOIR__ELU] = FROM_X("elu", AS_IT_COMES),
    [CHOIR__SOFTPLUS] = FROM_X("softplus", IN_F32),
};

static choir_tensor *unary(choir_tensor *x, choir__unary u)
{
    const struct unary_ops *ops = &unary_ops[u.op];
    choir_tensor *poisoned;
    x = choir__sound(x, ops->op.name);
    const choir__partition *part = x->split; /* a cast of x lacks it */
    if (!choir__is_dense(x))
        x = choir_contiguous(x);
    choir_scope *scope = choir__begin(&ops->op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!choir__is_float(x->dtype))
        return choir__poison(scope, CHOIR_ERR_DTYPE, "%s: expected a floating tensor, got %s",
            ops->op.name, choir_dtype_name(x->dtype));
    choir_tensor *y = choir__tensor_like(scope, x);
    bool reads_y = ops->rounded.name, rounded = reads_y && choir__to_be_rounded(y);
    y = choir__computed(rounded ? &ops->rounded : &ops->op, y, &x, 1,
        (choir__keeps){&u, sizeof u, {reads_y ? y : x}});
    if (ops->op.slices_in && part && !part->passes && !part->tokens)
        y->split = part; /* scores of a vocabulary in slices stay in slices */
    return y;
}

choir_tensor *choir_neg(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__NEG});
}

choir_tensor *choir_exp(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__EXP});
}

choir_tensor *choir_log(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__LOG});
}

choir_tensor *choir_sqrt(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SQRT});
}

choir_tensor *choir_square(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SQUARE});
}

choir_tensor *choir_abs(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__ABS});
}

choir_tensor *choir_tanh(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__TANH});
}

choir_tensor *choir_sigmoid(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SIGMOID});
}

choir_tensor *choir_relu(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__RELU});
}

choir_tensor *choir_gelu(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__GELU});
}

choir_tensor *choir_gelu_tanh(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__GELU_TANH});
}

choir_tensor *choir_silu(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SILU});
}

choir_tensor *choir_affine(choir_tensor *x, double a, double b)
{
    return unary(x, (choir__unary){.op = CHOIR__AFFINE, .a = a, .b = b});
}

choir_tensor *choir_scale(choir_tensor *x, double a)
{
    return choir_affine(x, a, 0);
}

choir_tensor *choir_sin(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SIN});
}

choir_tensor *choir_cos(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__COS});
}

choir_tensor *choir_pow(choir_tensor *x, double exponent)
{
    if (exponent == 2)
        return choir_square(x); /* the same values, and faster */
    return unary(x, (choir__unary){.op = CHOIR__POW, .a = exponent});
}

choir_tensor *choir_clamp(choir_tensor *x, double least, double most)
{
    x = choir__sound(x, "clamp");
    if (isnan(least) || isnan(most))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "clamp: expected bounds that are numbers, got %g and %g", least, most);
    return unary(x, (choir__unary){.op = CHOIR__CLAMP, .a = least, .b = most});
}

choir_tensor *choir_sign(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__SIGN});
}

choir_tensor *choir_floor(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__FLOOR});
}

choir_tensor *choir_ceil(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__CEIL});
}

choir_tensor *choir_round(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__ROUND});
}

choir_tensor *choir_log1p(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__LOG1P});
}

choir_tensor *choir_expm1(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__EXPM1});
}

choir_tensor *choir_erf(choir_tensor *x)
{
    return unary(x, (choir__unary){.op = CHOIR__ERF});
}

/* Returns NULL if all of a's and b's numbers may be an op's, else a poisoned tensor. */
static choir_tensor *bad_number(choir_tensor **x, const char *op, double a, double b)
{
    *x = choir__sound(*x, op);
    if (!isnan(a) && !isnan(b))
        return NULL;
    return choir__poison((*x)->scope, CHOIR_ERR_ARGUMENT, "%s: expected a number, got nan", op);
}

choir_tensor *choir_leaky_relu(choir_tensor *x, double slope)
{
    choir_tensor *bad = bad_number(&x, "leaky_relu", slope, 0);
    return bad ? bad : unary(x, (choir__unary){.op = CHOIR__LEAKY, .a = slope});
}

choir_tensor *choir_elu(choir_tensor *x, double alpha)
{
    choir_tensor *bad = bad_number(&x, "elu", alpha, 0);
    return bad ? bad : unary(x, (choir__unary){.op = CHOIR__ELU, .a = alpha});
}

choir_tensor *choir_softplus(choir_tensor *x, double beta, double threshold)
{
    choir_tensor *bad = bad_number(&x, "softplus", beta, threshold);
    if (bad)
        return bad;
    if (beta == 0)
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "softplus: expected a beta that is "
            "not 0");
    return unary(x, (choir__unary){.op = CHOIR__SOFTPLUS, .a = beta, .b = threshold});
}
