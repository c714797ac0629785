/* Comparisons, whose results are bool, and choices by such a mask. */
#include <math.h>
#include <string.h>

#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"

/* --- comparisons: no gradients --- */

#define COMPARE(title)                                                                         \
    {                                                                                          \
        .name = title, .by_token = true, .cast = CHOIR__CAST_WIDEST,                           \
        .half_native = CHOIR__ALL_IN                                                           \
    }

static const choir__op compare_ops[CHOIR__COMPARE_COUNT] = {
    [CHOIR__EQ] = COMPARE("eq"),
    [CHOIR__NE] = COMPARE("ne"),
    [CHOIR__LT] = COMPARE("lt"),
    [CHOIR__LE] = COMPARE("le"),
    [CHOIR__GT] = COMPARE("gt"),
    [CHOIR__GE] = COMPARE("ge"),
    [CHOIR__AND] = COMPARE("logical_and"),
    [CHOIR__OR] = COMPARE("logical_or"),
    [CHOIR__XOR] = COMPARE("logical_xor"),
};

static void launch_compare(
    choir_tensor *y, choir__compare_op op, const choir_tensor *a, const choir_tensor *b)
{
    choir__k_compare args = {.y = choir__stretched(y, y->shape),
        .a = choir__stretched(a, y->shape),
        .b = choir__stretched(b, y->shape),
        .ndim = y->shape.ndim,
        .op = op,
        .dtype = a->dtype};
    memcpy(args.shape, y->shape.dim, sizeof args.shape);
    if (y->count)
        choir__launch(choir__device_of(y), a->dtype, compare, &args);
}

choir_tensor *choir__number_like(choir_scope *scope, const choir_tensor *x, double value)
{
    choir_tensor *t = choir__tensor_new(scope, choir__device_of(x), x->dtype, CHOIR_SCALAR);
    if (!t->poisoned)
        choir__launch_fill(t, value);
    return t;
}

/* `value`: NULL, or a number that replaces b, in a's dtype and made where the op runs */
static choir_tensor *compare_with(
    choir__compare_op op, choir_tensor *a, choir_tensor *b, const double *value)
{
    const choir__op *info = &compare_ops[op];
    choir_tensor *in[2] = {a, b}, *poisoned;
    choir_scope *scope = choir__begin(info, in, value ? 1 : 2, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape;
    if (value && (in[1] = choir__number_like(scope, in[0], *value))->poisoned)
        return in[1];
    if (in[0]->dtype != in[1]->dtype)
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "%s: expected two tensors of one dtype, got %s and %s", info->name,
            choir_dtype_name(in[0]->dtype), choir_dtype_name(in[1]->dtype));
    if (!choir__broadcast(in[0]->shape, in[1]->shape, &shape))
        return choir__shape_error(info->name, scope, in, 2, "expected shapes that broadcast");
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(in[0]), CHOIR_BOOL, shape);
    if (!y->poisoned)
        launch_compare(y, op, in[0], in[1]);
    return choir__as_stored(y);
}

static choir_tensor *compare(choir__compare_op op, choir_tensor *a, choir_tensor *b)
{
    return compare_with(op, a, b, NULL);
}

choir_tensor *choir_eq(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__EQ, a, b);
}

choir_tensor *choir_ne(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__NE, a, b);
}

choir_tensor *choir_lt(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__LT, a, b);
}

choir_tensor *choir_le(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__LE, a, b);
}

choir_tensor *choir_gt(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__GT, a, b);
}

choir_tensor *choir_ge(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__GE, a, b);
}

choir_tensor *choir_logical_and(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__AND, a, b);
}

choir_tensor *choir_logical_or(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__OR, a, b);
}

choir_tensor *choir_logical_xor(choir_tensor *a, choir_tensor *b)
{
    return compare(CHOIR__XOR, a, b);
}

choir_tensor *choir_logical_not(choir_tensor *x)
{
    return compare_with(CHOIR__EQ, x, NULL, &(double){0});
}

/* Makes the comparison of whole numbers with any number one with a number of their dtype. */
static void compare_whole(choir_dtype dtype, choir_comparison *how, double *value)
{
    const double number = *value;
    double least, most;
    choir__range_of(dtype, &least, &most);
    bool equal = *how == CHOIR_EQ || *how == CHOIR_NE, below = number < least;
    if (isnan(number) || below || number > most || (equal && number != floor(number))) {
        /* the result is the same for all */
        bool all = *how == CHOIR_NE || (!equal && !isnan(number) &&
                                           below == (*how == CHOIR_GT || *how == CHOIR_GE));
        *how = all ? CHOIR_GE : CHOIR_LT;
        *value = least;
    } else {
        *value = *how == CHOIR_LT || *how == CHOIR_GE ? ceil(number) : floor(number);
    }
}

choir_tensor *choir_compare(choir_tensor *x, choir_comparison how, double value)
{
    static const choir__compare_op ops[] = {[CHOIR_EQ] = CHOIR__EQ,
        [CHOIR_NE] = CHOIR__NE,
        [CHOIR_LT] = CHOIR__LT,
        [CHOIR_LE] = CHOIR__LE,
        [CHOIR_GT] = CHOIR__GT,
        [CHOIR_GE] = CHOIR__GE};
    const choir__op unknown = {.name = "compare", .any_dtype = true};
    choir_tensor *poisoned;
    x = choir__sound(x, unknown.name);
    if (!choir__is_float(x->dtype))
        compare_whole(x->dtype, &how, &value);
    if ((unsigned)how < CHOIR_COUNT(ops))
        return compare_with(ops[how], x, NULL, &value);
    choir_scope *scope = choir__begin(&unknown, &x, 1, &poisoned);
    return scope ? choir__poison(scope, CHOIR_ERR_ARGUMENT,
                       "compare: expected CHOIR_EQ to CHOIR_GE, got comparison %d", (int)how)
                 : poisoned;
}

/* --- where --- */

/* Computes y = mask ? a : b; all three broadcast to y's shape. */
static void launch_where(
    choir_tensor *y, const choir_tensor *mask, const choir_tensor *a, const choir_tensor *b)
{
    choir__k_where args = {.y = choir__stretched(y, y->shape),
        .mask = choir__stretched(mask, y->shape),
        .a = choir__stretched(a, y->shape),
        .b = choir__stretched(b, y->shape),
        .ndim = y->shape.ndim,
        .dtype = y->dtype};
    memcpy(args.shape, y->shape.dim, sizeof args.shape);
    if (y->count)
        choir__launch(choir__device_of(y), CHOIR_F32, where, &args);
}

/* The operands are b, the mask, and a unless that is a number. */
static void where_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *zero = choir__number_like(sink->scope, gy, 0);
    for (int i = 0; i < r->count; i += 2) {
        if (!choir__wanted(r, i) || zero->poisoned)
            continue;
        choir_tensor *g =
            choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, gy->shape);
        if (g->poisoned)
            return;
        launch_where(g, r->in[1], i ? gy : zero, i ? zero : gy);
        choir__give_summed(r, i, g, sink);
    }
}

static void where_again(choir__tape_entry *r)
{
    const double *value = r->attrs;
    choir_tensor *a = r->count > 2 ? r->in[2] : choir__number_like(r->scope, r->in[0], *value);
    if (!a->poisoned)
        launch_where(r->out, r->in[1], a, r->in[0]);
}

#define CHOICE(title)                                                                          \
    {                                                                                          \
        .name = title, .by_token = true, .half = 5, .half_native = 5,                          \
        .backward = where_backward, .recompute = where_again, .reads_in = 2,                   \
    }
static const choir__op where_op = CHOICE("where"), masked_fill_op = CHOICE("masked_fill");

/* `value`: NULL, or a number that replaces a */
static choir_tensor *where(const choir__op *op, choir_tensor *mask, choir_tensor *a,
    choir_tensor *b, const double *value)
{
    choir_tensor *in[3] = {b, mask, a}, *poisoned;
    int count = value ? 2 : 3;
    choir_scope *scope = choir__begin(op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape, a_shape = value ? CHOIR_SCALAR : in[2]->shape;
    if (in[1]->dtype != CHOIR_BOOL)
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "%s: expected a bool mask, got %s; comparisons make masks", op->name,
            choir_dtype_name(in[1]->dtype));
    if (!value && in[0]->dtype != in[2]->dtype)
        return choir__poison(scope, CHOIR_ERR_DTYPE,
            "%s: expected two tensors of one dtype, got %s and %s", op->name,
            choir_dtype_name(in[2]->dtype), choir_dtype_name(in[0]->dtype));
    if (!choir__broadcast(in[0]->shape, a_shape, &shape) ||
        !choir__broadcast(shape, in[1]->shape, &shape))
        return choir__shape_error(op->name, scope, in, count, "expected shapes that broadcast");
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(in[0]), in[0]->dtype, shape);
    return choir__computed(
        op, y, in, count, (choir__keeps){value, value ? sizeof *value : 0, {NULL}});
}

choir_tensor *choir_where(choir_tensor *mask, choir_tensor *a, choir_tensor *b)
{
    return where(&where_op, mask, a, b, NULL);
}

choir_tensor *choir_masked_fill(choir_tensor *x, choir_tensor *mask, double value)
{
    x = choir__sound(x, masked_fill_op.name);
    if (!choir__holds(x->dtype, value))
        return choir__bad_value(x->scope, masked_fill_op.name, x->dtype, value);
    return where(&masked_fill_op, mask, NULL, x, &value);
}
