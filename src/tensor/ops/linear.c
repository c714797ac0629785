/* The linear layer: x W' + b, or gelu(x) W' + b as one op.
 *
 * A transposed operand is a view with exchanged strides, so backward copies nothing, and the
 * weight may be stored as (out, in), or as (in, out) like GPT-2's. 16-bit operands stay 16-bit:
 * the kernel adds up in f32, and a gradient that goes to f32 memory (a parameter's) is never
 * rounded to 16 bits.
 *
 * Where products have epilogues, the one of the weight's gradient also gives the bias's, and
 * with GELU the one of x's gradient multiplies by GELU's slope. GELU belongs to the layer that
 * reads it, not to the one before: then a pipeline can cut between any two ops, and no cut
 * changes a bit. Its result is kept beside x: to make it again moves as much memory as to write
 * it.
 *
 * The rows of a result may be a few elements apart where that makes products fast: the scores
 * of 50,257 tokens in 16 bits. Losses read them so, and give such gradients.
 *
 * If the weight is cut into slices (tensor parallelism), sums over slices are sliced.c's. */
#include "tensor/autocast.h"
#include "tensor/held.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/ops/product.h"
#include "tensor/ops/sliced/nodes.h"
#include "tensor/ops/sliced/sliced.h"
#include "tensor/segment.h"
#include "tensor/sequence.h"
#include "tensor/tokens.h"

static const choir__op linear_op, linear_of_gelu_op;

enum { FIRST, WHOLE_GY }; /* saved: the product's first operand; see whole_gradient */

static choir__linear_of how(const choir__tape_entry *r)
{
    return *(const choir__linear_of *)r->attrs;
}

/* Returns gy with the tokens of all ranks; the result has this rank's. It is gathered once for
 * both products of backward, unless the second is put off. */
static choir_tensor *whole_gradient(choir__tape_entry *r, choir_tensor *gy, choir_scope *scope)
{
    const choir__partition *tokens = how(r).tokens;
    if (!tokens)
        return gy;
    choir_tensor *before = r->saved[WHOLE_GY];
    if (before && before->storage)
        return before;
    return r->saved[WHOLE_GY] = tokens->by->ops->parts->all_tokens(tokens, scope, gy);
}

/* gx = gy w, where the columns of gy are in slices */
static void sliced_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    const choir_tensor *x = r->in[0];
    gy = choir__product_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    choir__k_matmul args =
        choir__product_of(gy->dtype, choir__rows_at(NULL, 0), choir__rows_of(gy),
            choir__rows_at(NULL, 0), choir__rows(x), choir__cols(x), choir__cols(gy));
    args.cut = how(r).part->cut;
    choir_tensor *w = choir__held_operand(sink->scope, &args, r->in[1], how(r).in_out);
    if (!w)
        return;
    choir__sliced_gradient(r, args, how(r).part, sink);
    choir__held_done(w, r->in[1]);
}

/* gx = gy w, times GELU's slope */
static void linear_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    bool gelu = how(r).gelu, adds = false;
    choir__tape_entry *of = r; /* entry whose input 0 gets the gradient */
    if (choir__sliced_record(r)) {
        sliced_backward_input(r, gy, sink);
        return;
    }
    choir_tensor *gx = gelu ? NULL : sink->dest_wide(sink, r, 0, &of, &adds);
    if (!gx && !(gx = sink->dest(sink, r, 0)))
        return;
    gy = choir__product_rows(sink->scope, whole_gradient(r, gy, sink->scope));
    choir_tensor *x = gelu ? choir__dense_rows(sink->scope, r->in[0]) : NULL;
    if (gy->poisoned || (x && x->poisoned))
        return;
    choir__k_matmul args =
        choir__matmul_args(gx, gy->dtype, choir__rows_of(gx), choir__rows_of(gy),
            choir__rows_at(NULL, 0), 1, choir__rows(gx), choir__cols(gx), choir__cols(gy));
    choir_tensor *w = choir__held_operand(sink->scope, &args, r->in[1], how(r).in_out);
    if (!w)
        return;
    args.gelu_in = gelu ? choir__data(x) : NULL;
    args.accumulate = adds;
    choir__launch(choir__device_of(gx), gy->dtype, matmul, &args);
    choir__held_done(w, r->in[1]);
    sink->give(sink, of, 0, gx);
}

enum { PART_BYTES = 24 << 20 };

int64_t choir__part_rows(choir_shape shape)
{
    int64_t rows = shape.dim[0], bytes = 4 * rows * shape.dim[1];
    int64_t parts = (bytes + PART_BYTES - 1) / PART_BYTES;
    return parts < 2 ? rows : ((rows + parts - 1) / parts + 15) / 16 * 16;
}

/* The products of a weight's gradient, a^T b, sums over rows that are perhaps cut. The bias's
 * gradient gb, the sums of gy, which is a or b, comes along with the first of them unless gb is
 * NULL. */
struct weight_product {
    choir_tensor *a, *b, *gy, *gb;
    choir__cut cut;
    const choir__sequence *joins; /* ranks have parts of the sums; NULL: the sums are here */
};

/* Computes rows [from, from + n) of the product in the memory of g. */
static void launch_part(const struct weight_product *p, choir_tensor *g, choir__matrix memory,
    int64_t from, int64_t n)
{
    const choir_tensor *a = p->a, *b = p->b;
    choir__matrix left = choir__transposed(choir__rows_of(a));
    left.p = (char *)left.p + (size_t)from * choir_dtype_size(a->dtype);
    choir__k_matmul args = choir__matmul_args(
        g, a->dtype, memory, left, choir__rows_of(b), 1, n, choir__cols(b), choir__rows(a));
    args.cut = p->cut;
    if (p->joins) {
        choir__joined_product(p->joins, args, g);
        return;
    }
    if (p->gb && from == 0)
        *(p->gy == a ? &args.a_sums : &args.b_sums) = choir__data(p->gb);
    choir__launch(choir__device_of(g), a->dtype, matmul, &args);
}

/* Computes the gradient of the weight in parts of its rows. */
static void weight_gradient(
    const struct weight_product *p, choir__tape_entry *r, choir__sink *sink)
{
    choir_shape shape = r->in[1]->shape;
    int64_t rows = shape.dim[0], each = choir__part_rows(shape), part = 0;
    choir_tensor *gw = sink->dest_part(sink, r, 1, 0);
    choir__tape_entry *of = r;
    int input = 1;
    bool whole = !gw;
    if (whole && !(gw = choir__operand_dest(sink, r, 1, &of, &input)))
        return;
    for (int64_t from = 0; from < rows && gw; from += each) {
        choir__matrix memory = choir__rows_of(gw);
        if (whole)
            memory.p =
                (char *)memory.p + (size_t)(from * memory.row) * choir_dtype_size(gw->dtype);
        launch_part(p, gw, memory, from, choir__min(each, rows - from));
        if (whole)
            continue;
        sink->give_part(sink, r, 1);
        gw = from + each < rows ? sink->dest_part(sink, r, 1, ++part) : NULL;
    }
    if (whole)
        sink->give(sink, of, input, gw);
}

/* gb: the sums of gy's columns */
static void bias_gradient(choir_tensor *gb, choir_tensor *gy, choir__cut cut,
    const choir__sequence *joins, choir_scope *scope)
{
    if (!choir__device_of(gy)->half)
        gy = choir__wide(scope, gy);
    if (gy->poisoned)
        return;
    choir__k_sum args = {.x = choir__data(gy),
        .y = choir__data(gb),
        .rows = choir__rows(gy),
        .cols = choir__cols(gy),
        .row = choir__row_of(gy),
        .scale = 1,
        .over_rows = true,
        .wide = gb->dtype != gy->dtype,
        .dtype = gy->dtype,
        .cut = cut};
    if (joins)
        choir__joined_columns(joins, args, gy, gb);
    else
        choir__launch(choir__device_of(gy), gy->dtype, sum, &args);
}

static choir_dtype gradient_dtype(const choir_tensor *t)
{
    return choir__has_wide_gradient(t) ? CHOIR_F32 : t->dtype;
}

/* True if the product of the weight's gradient also gives the bias's: the two have one dtype,
 * and no part of the product reads only some columns of gy. */
static bool sums_along(const choir__tape_entry *r, const choir_tensor *gy, bool in_out)
{
    choir_shape shape = r->in[1]->shape;
    return choir__device_of(gy)->epilogues && !r->scope->sequence && choir__wanted(r, 1) &&
           choir__wanted(r, 2) && gradient_dtype(r->in[1]) == gradient_dtype(r->in[2]) &&
           (in_out || choir__part_rows(shape) >= shape.dim[0]);
}

static void linear_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[FIRST];
    bool in_out = how(r).in_out;
    gy = choir__product_rows(sink->scope, whole_gradient(r, gy, sink->scope));
    if (gy->poisoned)
        return;
    bool along = sums_along(r, gy, in_out);
    choir_tensor *gb = along ? sink->dest(sink, r, 2) : NULL;
    choir__cut cut = choir__sequence_cut(r->scope, r->in[0]);
    const choir__sequence *joins = choir__joining(r->scope, r->in[0]);
    struct weight_product p = {in_out ? x : gy, in_out ? gy : x, gy, gb, cut, joins};
    if (choir__wanted(r, 1))
        weight_gradient(&p, r, sink);
    if (!along && (gb = sink->dest(sink, r, 2)))
        bias_gradient(gb, gy, cut, joins, sink->scope);
    if (gb)
        sink->give(sink, r, 2, gb);
}

/* rows: row-major */
static void launch_linear(choir_tensor *y, choir_tensor *rows, choir_tensor *weight,
    const choir_tensor *bias, choir__linear_of of)
{
    choir_scope *scope = y->scope;
    choir__k_matmul args =
        choir__matmul_args(y, rows->dtype, choir__rows_of(y), choir__rows_of(rows),
            choir__rows_at(NULL, 0), 1, choir__rows(rows), choir__cols(y), choir__cols(rows));
    if (of.rows)
        args.cut = of.part->cut;
    weight = weight->held ? weight : choir__dense_rows(scope, weight);
    choir_tensor *w =
        weight->poisoned ? NULL : choir__held_operand(scope, &args, weight, !of.in_out);
    if (!w)
        return;
    args.bias = choir__data_or_null(bias);
    args.half_bias = bias && choir__is_half(bias->dtype);
    if (of.rows)
        choir__sliced_product(y, args, bias, &of);
    else
        choir__launch(choir__device_of(y), rows->dtype, matmul, &args);
    choir__held_done(w, weight);
}

static void launch_gelu(choir_tensor *y, const choir_tensor *x)
{
    choir__k_unary args = {.x = choir__data(x),
        .y = choir__data(y),
        .n = y->count,
        .op = CHOIR__GELU_TANH,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, unary, &args);
}

static void linear_again(choir__tape_entry *r)
{
    choir__copy_again(r, 0);
    launch_linear(r->out, r->saved[0], r->in[1], r->in[2], how(r));
}

static void linear_of_gelu_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (x->poisoned)
        return;
    launch_gelu(r->saved[0], x);
    launch_linear(r->out, r->saved[0], r->in[1], r->in[2], how(r));
}

/* saved: the product's first operand, x or GELU's result, row-major */
#define LINEAR(title, function)                                                                \
    {                                                                                          \
        .name = title, .by_token = true, .optional = 4, .cast = CHOIR__CAST_LOWER, .half = 3,  \
        .half_native = 3, .bias = 4, .backward_input = linear_backward_input,                  \
        .backward_weight = linear_backward_weight, .recompute = function,                      \
        .recompute_saved = 1, .reads_in = 3, .parts_in = 2, .weights_in = 6, .slices_in = 6    \
    }

static const choir__op linear_op = LINEAR("linear", linear_again),
                       linear_of_gelu_op = LINEAR("linear_of_gelu", linear_of_gelu_again);

static choir_tensor *bad_operands(
    const choir__op *op, choir_scope *scope, choir_tensor *const *in, bool in_out)
{
    choir_tensor *x = in[0], *weight = in[1], *bias = in[2];
    choir_shape w = choir__values_shape(weight);
    if (w.ndim != 2 || x->shape.ndim < 1 || choir__cols(x) != w.dim[!in_out] ||
        (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != w.dim[in_out])))
        return choir__shape_error(op->name, scope, in, 3,
            in_out ? "expected x (..., in), weight (in, out), bias (out)"
                   : "expected x (..., in), weight (out, in), bias (out)");
    if (!choir__is_float(x->dtype) || (x->dtype != weight->dtype && !weight->held) ||
        (bias && bias->dtype != choir__beside(x->dtype) &&
            !(bias->dtype == x->dtype && choir__device_of(x)->half)))
        return choir__shape_error(op->name, scope, in, 3, "expected one floating dtype");
    if (!choir__sequence_fits(scope, x))
        return choir__shape_error(op->name, scope, in, 3, CHOIR__SEQUENCE_ROWS);
    return NULL;
}

choir_tensor *choir__linear_as(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    const choir__op *op = of.gelu ? &linear_of_gelu_op : &linear_op;
    choir_tensor *bad, *in[3] = {x, weight, bias};
    choir_scope *scope = choir__begin(op, in, 3, &bad);
    if (!scope || (bad = bad_operands(op, scope, in, of.in_out)))
        return bad;
    x = in[0], weight = in[1];
    int64_t outputs = choir__values_shape(weight).dim[of.in_out];
    choir_tensor *rows = of.gelu
                             ? choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape)
                             : choir__dense_rows(scope, x);
    choir_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = outputs;
    if (of.tokens)
        shape.dim[of.tokens->dim] = choir__tokens_here(of.tokens);
    choir_device *device = choir__device_of(x);
    int64_t row = choir__product_row(device, x->dtype, outputs);
    choir_tensor *y = choir__tensor_spaced(scope, device, x->dtype, shape, row);
    y = choir__computed(op, y, in, 3, (choir__keeps){&of, sizeof of, {rows}});
    y->split = of.tokens; /* y gets no mark of columns, since they are not x's */
    return y;
}

/* Passes a weight in slices to its strategy, if x is sound. */
static choir_tensor *linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of)
{
    const char *name = of.gelu ? linear_of_gelu_op.name : linear_op.name;
    x = choir__sound(x, name);
    weight = choir__sound(weight, name);
    return weight->split && !x->poisoned
               ? weight->split->by->ops->parts->linear(x, weight, bias, of)
               : choir__linear_as(x, weight, bias, of);
}

choir_tensor *choir_linear(choir_tensor *x, choir_tensor *weight, choir_tensor *bias)
{
    return linear(x, weight, bias, (choir__linear_of){0});
}

choir_tensor *choir__linear_in_out(choir_tensor *x, choir_tensor *weight, choir_tensor *bias)
{
    return linear(x, weight, bias, (choir__linear_of){.in_out = true});
}

choir_tensor *choir__linear_of_gelu(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    return linear(x, weight, bias, (choir__linear_of){.in_out = in_out, .gelu = true});
}

bool choir__joins_gelu(const choir_tensor *x)
{
    if (x->poisoned || x->param || !choir__is_half(x->dtype))
        return false;
    const choir__placement *p = x->scope->placement;
    return p && !p->paused ? p->epilogues : choir__device_of(x)->epilogues;
}
