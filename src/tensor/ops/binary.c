/* Functions of two elements, of shapes that broadcast: one function each, and one kernel for
 * all of them. */
#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"

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

static void add_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
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

static void sub_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    if (choir__wanted(r, 0))
        choir__give_summed(r, 0, gy, sink);
    if (choir__wanted(r, 1))
        choir__give_summed(r, 1, negated(sink->scope, gy), sink);
}

static void mul_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            choir__give_summed(
                r, i, product(sink->scope, CHOIR__MUL, gy, r->in[1 - i], gy->shape), sink);
}

/* d(a/b) = da / b - db (a/b) / b */
static void div_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *over_b = product(sink->scope, CHOIR__DIV, gy, r->in[1], gy->shape);
    if (choir__wanted(r, 0))
        choir__give_summed(r, 0, over_b, sink);
    if (choir__wanted(r, 1)) {
        choir_tensor *g = product(sink->scope, CHOIR__MUL, over_b, r->saved[0], gy->shape);
        choir__give_summed(r, 1, negated(sink->scope, g), sink);
    }
}

/* The greater (lesser) operand gets gy, and each a half where they are equal. */
static void give_share(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink, bool greater)
{
    for (int i = 0; i < 2; i++) {
        if (!choir__wanted(r, i))
            continue;
        int first = greater ? i : 1 - i;
        choir_tensor *share =
            product(sink->scope, CHOIR__PORTION, r->in[first], r->in[1 - first], gy->shape);
        if (share->poisoned)
            return;
        choir__give_summed(r, i, product(sink->scope, CHOIR__MUL, gy, share, gy->shape), sink);
    }
}

static void maximum_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    give_share(r, gy, sink, true);
}

static void minimum_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    give_share(r, gy, sink, false);
}

static void binary_again(choir__tape_entry *r);

#define BINARY(title, ...)                                                                     \
    {                                                                                          \
        .name = title, .by_token = true, .tokens_in = 3, .cast = CHOIR__CAST_WIDEST,           \
        .half_native = CHOIR__ALL_IN, .recompute = binary_again, __VA_ARGS__                   \
    }

const choir__op choir__add_op = BINARY("add", .backward = add_backward);
static const choir__op sub_op = BINARY("sub", .backward = sub_backward);
static const choir__op mul_op = BINARY("mul", .backward = mul_backward, .reads_in = 3);
static const choir__op div_op = BINARY("div", .backward = div_backward, .reads_in = 3);
static const choir__op maximum_op =
    BINARY("maximum", .backward = maximum_backward, .reads_in = 3);
static const choir__op minimum_op =
    BINARY("minimum", .backward = minimum_backward, .reads_in = 3);
static const choir__op *const binary_ops[CHOIR__BINARY_COUNT] = {
    [CHOIR__ADD] = &choir__add_op,
    [CHOIR__SUB] = &sub_op,
    [CHOIR__MUL] = &mul_op,
    [CHOIR__DIV] = &div_op,
    [CHOIR__MAXIMUM] = &maximum_op,
    [CHOIR__MINIMUM] = &minimum_op,
};

static void binary_again(choir__tape_entry *r)
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

choir_tensor *choir_maximum(choir_tensor *a, choir_tensor *b)
{
    return choir__binary(CHOIR__MAXIMUM, a, b);
}

choir_tensor *choir_minimum(choir_tensor *a, choir_tensor *b)
{
    return choir__binary(CHOIR__MINIMUM, a, b);
}
