/* Elementwise ops: one function each, and one kernel for all of them. */
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

/* --- unary --- */

struct unary {
    choir__unary_op op;
    double a, b;
};

/* saved: y for the ops whose backward is cheaper from y, else x; both have one memory order */
static void unary_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct unary *u = r->attrs;
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

static void unary_again(choir__record *r)
{
    const struct unary *u = r->attrs;
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

/* An op, and its record if the result is rounded to 16 bits (`rounded`). Backward reads x, or y
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
        .op = OP(title, .cheap = true, .reads_in = 1, __VA_ARGS__)                             \
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
    [CHOIR__TANH] = FROM_Y("tanh", AS_IT_COMES),
    [CHOIR__SIGMOID] = FROM_Y("sigmoid", AS_IT_COMES),
    [CHOIR__RELU] = FROM_Y("relu", AS_IT_COMES),
    [CHOIR__GELU] = FROM_X("gelu", AS_IT_COMES),
    [CHOIR__GELU_TANH] = FROM_X("gelu_tanh", AS_IT_COMES),
    [CHOIR__SILU] = FROM_X("silu", AS_IT_COMES),
    [CHOIR__SQUARE] = FROM_X("square", IN_F32),
    [CHOIR__ABS] = FROM_X("abs", AS_IT_COMES),
    [CHOIR__SIN] = FROM_X("sin", AS_IT_COMES),
    [CHOIR__COS] = FROM_X("cos", AS_IT_COMES),
    [CHOIR__AFFINE] = FROM_X("affine", AS_IT_COMES),
    [CHOIR__POW] = FROM_X("pow", IN_F32),
    [CHOIR__CLAMP] = FROM_X("clamp", AS_IT_COMES),
};

static choir_tensor *unary(choir_tensor *x, struct unary u)
{
    const struct unary_ops *ops = &unary_ops[u.op];
    choir_tensor *poisoned;
    x = choir__sound(x, ops->op.name);
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
    return choir__computed(rounded ? &ops->rounded : &ops->op, y, &x, 1,
        (choir__keeps){&u, sizeof u, {reads_y ? y : x}});
}

choir_tensor *choir_neg(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__NEG});
}

choir_tensor *choir_exp(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__EXP});
}

choir_tensor *choir_log(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__LOG});
}

choir_tensor *choir_sqrt(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__SQRT});
}

choir_tensor *choir_square(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__SQUARE});
}

choir_tensor *choir_abs(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__ABS});
}

choir_tensor *choir_tanh(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__TANH});
}

choir_tensor *choir_sigmoid(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__SIGMOID});
}

choir_tensor *choir_relu(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__RELU});
}

choir_tensor *choir_gelu(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__GELU});
}

choir_tensor *choir_gelu_tanh(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__GELU_TANH});
}

choir_tensor *choir_silu(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__SILU});
}

choir_tensor *choir_affine(choir_tensor *x, double a, double b)
{
    return unary(x, (struct unary){.op = CHOIR__AFFINE, .a = a, .b = b});
}

choir_tensor *choir_scale(choir_tensor *x, double a)
{
    return choir_affine(x, a, 0);
}

choir_tensor *choir_sin(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__SIN});
}

choir_tensor *choir_cos(choir_tensor *x)
{
    return unary(x, (struct unary){.op = CHOIR__COS});
}

choir_tensor *choir_pow(choir_tensor *x, double exponent)
{
    if (exponent == 2)
        return choir_square(x); /* the same values, and faster */
    return unary(x, (struct unary){.op = CHOIR__POW, .a = exponent});
}

choir_tensor *choir_clamp(choir_tensor *x, double least, double most)
{
    x = choir__sound(x, "clamp");
    if (isnan(least) || isnan(most))
        return choir__poison(x->scope, CHOIR_ERR_ARGUMENT,
            "clamp: expected bounds that are numbers, got %g and %g", least, most);
    return unary(x, (struct unary){.op = CHOIR__CLAMP, .a = least, .b = most});
}

/* --- binary, with broadcasting --- */

bool choir__broadcast(choir_shape a, choir_shape b, choir_shape *out)
{
    out->ndim = a.ndim > b.ndim ? a.ndim : b.ndim;
    for (int i = 0; i < out->ndim; i++) {
        int ia = i - (out->ndim - a.ndim), ib = i - (out->ndim - b.ndim);
        int64_t da = ia < 0 ? 1 : a.dim[ia], db = ib < 0 ? 1 : b.dim[ib];
        if (da != db && da != 1 && db != 1)
            return false;
        out->dim[i] = da == 1 ? db : da;
    }
    return true;
}

static choir_tensor *product(choir_scope *scope, choir__binary_op op, choir_tensor *a,
    choir_tensor *b, choir_shape shape)
{
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(a), a->dtype, shape);
    if (!y->poisoned)
        choir__launch_binary(y, op, a, b);
    return y;
}

static void add_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            choir__give_summed(r, i, gy, sink);
}

static choir_tensor *negated(choir_scope *scope, choir_tensor *x)
{
    choir_tensor *y = choir__tensor_like(scope, x);
    if (!choir__same_layout(x, y)) {
        choir__launch_copy(y, x);
        x = y;
    }
    choir__k_unary args = {.x = choir__data(x),
        .y = choir__data(y),
        .n = y->count,
        .op = CHOIR__NEG,
        .dtype = y->dtype};
    choir__launch(choir__device_of(x), y->dtype, unary, &args);
    return y;
}

static void sub_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    if (choir__wanted(r, 0))
        choir__give_summed(r, 0, gy, sink);
    if (choir__wanted(r, 1))
        choir__give_summed(r, 1, negated(sink->scope, gy), sink);
}

static void mul_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            choir__give_summed(
                r, i, product(sink->scope, CHOIR__MUL, gy, r->in[1 - i], gy->shape), sink);
}

/* d(a/b) = da / b - db (a/b) / b */
static void div_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *over_b = product(sink->scope, CHOIR__DIV, gy, r->in[1], gy->shape);
    if (choir__wanted(r, 0))
        choir__give_summed(r, 0, over_b, sink);
    if (choir__wanted(r, 1)) {
        choir_tensor *g = product(sink->scope, CHOIR__MUL, over_b, r->saved[0], gy->shape);
        choir__give_summed(r, 1, negated(sink->scope, g), sink);
    }
}

static void binary_again(choir__record *r);

#define BINARY(title, ...)                                                                     \
    {                                                                                          \
        .name = title, .by_token = true, .tokens_in = 3, .cast = CHOIR__CAST_WIDEST,           \
        .half_native = CHOIR__ALL_IN, .recompute = binary_again, __VA_ARGS__                   \
    }

const choir__op choir__add_op = BINARY("add", .backward = add_backward);
static const choir__op sub_op = BINARY("sub", .backward = sub_backward);
static const choir__op mul_op = BINARY("mul", .backward = mul_backward, .reads_in = 3);
static const choir__op div_op = BINARY("div", .backward = div_backward, .reads_in = 3);
static const choir__op *const binary_ops[CHOIR__BINARY_COUNT] = {
    [CHOIR__ADD] = &choir__add_op,
    [CHOIR__SUB] = &sub_op,
    [CHOIR__MUL] = &mul_op,
    [CHOIR__DIV] = &div_op,
};

static void binary_again(choir__record *r)
{
    choir__binary_op op = CHOIR__ADD;
    while (binary_ops[op] != r->op)
        op++;
    choir__launch_binary(r->out, op, r->in[0], r->in[1]);
}

choir_tensor *choir__binary(choir__binary_op op, choir_tensor *a, choir_tensor *b)
{
    const char *name = binary_ops[op]->name;
    choir_tensor *in[2] = {a, b}, *poisoned;
    choir_scope *scope = choir__begin(binary_ops[op], in, 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape;
    if (in[0]->dtype != in[1]->dtype || !choir__is_float(in[0]->dtype))
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "%s: expected two floating tensors of one dtype, got %s and %s", name,
            choir_dtype_name(a->dtype), choir_dtype_name(b->dtype));
    if (!choir__broadcast(in[0]->shape, in[1]->shape, &shape) || shape.ndim > CHOIR_MAX_DIMS)
        return choir__shape_error(name, scope, in, 2, "expected shapes that broadcast");
    bool like = choir__same_layout(in[0], in[1]) ||
                (choir__same_shape(in[0]->shape, shape) && choir__is_dense(in[0]));
    choir_tensor *y =
        like ? choir__tensor_like(scope, in[0])
             : choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, shape);
    return choir__computed(
        binary_ops[op], y, in, 2, (choir__keeps){.saved = {op == CHOIR__DIV ? y : NULL}});
}

choir_tensor *choir_sub(choir_tensor *a, choir_tensor *b)
{
    return choir__binary(CHOIR__SUB, a, b);
}

choir_tensor *choir_mul(choir_tensor *a, choir_tensor *b)
{
    return choir__binary(CHOIR__MUL, a, b);
}

choir_tensor *choir_div(choir_tensor *a, choir_tensor *b)
{
    return choir__binary(CHOIR__DIV, a, b);
}
