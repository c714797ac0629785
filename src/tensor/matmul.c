/* Matrix products: matmul and the linear layer, with one strided kernel.
 *
 * A transposed operand is a view with exchanged strides, so backward copies nothing, and a
 * linear layer's weight may be stored as (out, in), or as (in, out) like GPT-2's. 16-bit
 * operands stay 16-bit: the kernel adds up in f32, and a gradient that goes to f32 memory (a
 * parameter's) is never rounded to 16 bits. */
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/segment.h"
#include "tensor/strategy.h"

/* A matrix, or a batch of them: p[b * batch + i * row + j * col] is element (i, j) of matrix
 * b. */
struct matrix {
    void *p;
    int64_t batch, row, col;
};

static struct matrix transposed(struct matrix m)
{
    return (struct matrix){m.p, m.batch, m.col, m.row};
}

/* Returns the arguments of c = a b (+ bias), `batch` times. dtype: of a and b. */
static choir__k_matmul product(const choir_tensor *c, choir_dtype dtype, struct matrix mc,
    struct matrix a, struct matrix b, const void *bias, int64_t batch, int64_t m, int64_t n,
    int64_t k)
{
    return (choir__k_matmul){
        .a = a.p,
        .b = b.p,
        .bias = bias,
        .c = mc.p,
        .batch0 = 1,
        .batch1 = batch,
        .m = m,
        .n = n,
        .k = k,
        .a_row = a.row,
        .a_col = a.col,
        .b_row = b.row,
        .b_col = b.col,
        .c_row = mc.row,
        .a_batch1 = a.batch,
        .b_batch1 = b.batch,
        .c_batch1 = mc.batch,
        .wide = c->dtype != dtype,
        .dtype = dtype,
    };
}

static void launch(choir_tensor *c, choir_dtype dtype, struct matrix mc, struct matrix a,
    struct matrix b, const void *bias, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    choir__k_matmul args = product(c, dtype, mc, a, b, bias, batch, m, n, k);
    choir__launch(choir__device_of(c), dtype, matmul, &args);
}

static struct matrix rows_of(const choir_tensor *t) /* contiguous, as (rows, cols) */
{
    return (struct matrix){choir__data(t), 0, choir__cols(t), 1};
}

/* --- linear: attrs is a bool, whether the weight is (in, out) --- */

/* Returns the weight as (out, in), in whichever order it is stored. */
static struct matrix weight_of(const choir_tensor *w, bool in_out)
{
    return in_out ? transposed(rows_of(w)) : rows_of(w);
}

static void linear_backward_input(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *w = r->in[1], *gx = sink->dest(sink, r, 0);
    if (!gx)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    launch(gx, gy->dtype, rows_of(gx), rows_of(gy), weight_of(w, *(const bool *)r->attrs), NULL,
        1, choir__rows(gx), choir__cols(gx), choir__cols(gy));
    sink->give(sink, r, 0, gx);
}

enum { PART_BYTES = 24 << 20 };

int64_t choir__part_rows(choir_shape shape)
{
    int64_t rows = shape.dim[0], bytes = 4 * rows * shape.dim[1];
    int64_t parts = (bytes + PART_BYTES - 1) / PART_BYTES;
    return parts < 2 ? rows : ((rows + parts - 1) / parts + 15) / 16 * 16;
}

/* The products of a weight's gradient, a^T b. The bias's gradient gb, the sums of gy, which is
 * a or b, comes along with the first of them unless gb is NULL. */
struct weight_product {
    choir_tensor *a, *b, *gy, *gb;
};

/* Computes rows [from, from + n) of the product in the memory of g. */
static void launch_part(const struct weight_product *p, choir_tensor *g, struct matrix memory,
    int64_t from, int64_t n)
{
    const choir_tensor *a = p->a, *b = p->b;
    struct matrix left = transposed(rows_of(a));
    left.p = (char *)left.p + (size_t)from * choir_dtype_size(a->dtype);
    choir__k_matmul args = product(
        g, a->dtype, memory, left, rows_of(b), NULL, 1, n, choir__cols(b), choir__rows(a));
    if (p->gb && from == 0)
        *(p->gy == a ? &args.a_sums : &args.b_sums) = choir__data(p->gb);
    choir__launch(choir__device_of(g), a->dtype, matmul, &args);
}

/* Computes the gradient of the weight in parts of its rows. */
static void weight_gradient(const struct weight_product *p, choir__record *r, choir__sink *sink)
{
    choir_shape shape = r->in[1]->shape;
    int64_t rows = shape.dim[0], each = choir__part_rows(shape), part = 0;
    choir_tensor *gw = sink->dest_part(sink, r, 1, 0);
    bool whole = !gw;
    if (whole && !(gw = sink->dest(sink, r, 1)))
        return;
    for (int64_t from = 0; from < rows && gw; from += each) {
        struct matrix memory = rows_of(gw);
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
        sink->give(sink, r, 1, gw);
}

/* gb: the sums of gy's columns */
static void bias_gradient(choir_tensor *gb, choir_tensor *gy, choir_scope *scope)
{
    if (!choir__device_of(gy)->half)
        gy = choir__wide(scope, gy);
    if (gy->poisoned)
        return;
    choir__k_sum args = {.x = choir__data(gy),
        .y = choir__data(gb),
        .rows = choir__rows(gy),
        .cols = choir__cols(gy),
        .scale = 1,
        .over_rows = true,
        .wide = gb->dtype != gy->dtype,
        .dtype = gy->dtype};
    choir__launch(choir__device_of(gy), gy->dtype, sum, &args);
}

static choir_dtype gradient_dtype(const choir_tensor *t)
{
    return t->param ? CHOIR_F32 : t->dtype;
}

/* True if the product of the weight's gradient also gives the bias's: the two have one dtype,
 * and no part of the product reads only some columns of gy. */
static bool sums_along(const choir__record *r, const choir_tensor *gy, bool in_out)
{
    choir_shape shape = r->in[1]->shape;
    return choir__device_of(gy)->epilogues && choir__wanted(r, 1) && choir__wanted(r, 2) &&
           gradient_dtype(r->in[1]) == gradient_dtype(r->in[2]) &&
           (in_out || choir__part_rows(shape) >= shape.dim[0]);
}

static void linear_backward_weight(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *x = r->saved[0];
    bool in_out = *(const bool *)r->attrs;
    gy = choir__dense_rows(sink->scope, gy);
    if (gy->poisoned)
        return;
    bool along = sums_along(r, gy, in_out);
    choir_tensor *gb = along ? sink->dest(sink, r, 2) : NULL;
    struct weight_product p = {in_out ? x : gy, in_out ? gy : x, gy, gb};
    if (choir__wanted(r, 1))
        weight_gradient(&p, r, sink);
    if (!along && (gb = sink->dest(sink, r, 2)))
        bias_gradient(gb, gy, sink->scope);
    if (gb)
        sink->give(sink, r, 2, gb);
}

/* rows, w: row-major */
static void launch_linear(
    choir_tensor *y, choir_tensor *rows, choir_tensor *w, const choir_tensor *bias, bool in_out)
{
    choir__k_matmul args = product(y, rows->dtype, rows_of(y), rows_of(rows),
        transposed(weight_of(w, in_out)), bias ? choir__data(bias) : NULL, 1, choir__rows(y),
        choir__cols(y), choir__cols(rows));
    args.half_bias = bias && choir__is_half(bias->dtype);
    choir__launch(choir__device_of(y), rows->dtype, matmul, &args);
}

static void linear_again(choir__record *r)
{
    choir_tensor *w = choir__dense_rows(r->scope, r->in[1]);
    choir__copy_again(r->saved[0], r->in[0]);
    if (!w->poisoned)
        launch_linear(r->out, r->saved[0], w, r->in[2], *(const bool *)r->attrs);
}

static const choir__op linear_op = {
    .name = "linear",
    .optional = 4,
    .cast = CHOIR__CAST_LOWER,
    .half = 3,
    .half_native = 3,
    .bias = 4,
    .backward_input = linear_backward_input,
    .backward_weight = linear_backward_weight,
    .again = linear_again,
    .again_saved = 1,
    .reads_in = 3,
    .parts_in = 2,
    .weights_in = 6,
};

static choir_tensor *linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out)
{
    x = choir__sound(x, linear_op.name);
    weight = choir__sound(weight, linear_op.name);
    if (weight->split && !x->poisoned)
        return weight->split->by->ops->parts->linear(x, weight, bias, in_out);
    choir_tensor *poisoned, *in[3] = {x, weight, bias};
    choir_scope *scope = choir__begin(&linear_op, in, 3, &poisoned);
    if (!scope)
        return poisoned;
    x = in[0], weight = in[1], bias = in[2];
    int64_t out = weight->shape.dim[in_out];
    if (weight->shape.ndim != 2 || x->shape.ndim < 1 ||
        choir__cols(x) != weight->shape.dim[!in_out] ||
        (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != out)))
        return choir__shape_error(linear_op.name, scope, in, 3,
            in_out ? "expected x (..., in), weight (in, out), bias (out)"
                   : "expected x (..., in), weight (out, in), bias (out)");
    if (!choir__is_float(x->dtype) || x->dtype != weight->dtype ||
        (bias && bias->dtype != choir__beside(x->dtype) &&
            !(bias->dtype == x->dtype && choir__device_of(x)->half)))
        return choir__shape_error(linear_op.name, scope, in, 3, "expected one dtype");
    choir_tensor *rows = choir__dense_rows(scope, x), *w = choir__dense_rows(scope, weight);
    choir_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = out;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    if (y->poisoned || rows->poisoned || w->poisoned)
        return y->poisoned ? y : rows->poisoned ? rows : w;
    launch_linear(y, rows, w, bias, in_out);
    choir__record *r = choir__record_op(&linear_op, y, in, 3);
    if (r) {
        choir__record_attrs(r, &in_out, sizeof in_out);
        r->saved[0] = rows;
    }
    return choir__as_stored(y);
}

choir_tensor *choir_linear(choir_tensor *x, choir_tensor *weight, choir_tensor *bias)
{
    return linear(x, weight, bias, false);
}

choir_tensor *choir__linear_in_out(choir_tensor *x, choir_tensor *weight, choir_tensor *bias)
{
    return linear(x, weight, bias, true);
}

/* --- matmul --- */

/* Returns the matrices of t, made row-major unless a transposed view suffices. */
static choir_tensor *as_matrices(choir_scope *scope, choir_tensor *t, struct matrix *m)
{
    int n = t->shape.ndim;
    bool swapped = n == 2 && t->stride[0] == 1 && t->stride[1] >= t->shape.dim[0];
    if (!swapped)
        t = choir__dense_rows(scope, t);
    if (!t->poisoned)
        *m = (struct matrix){choir__data(t), t->shape.dim[n - 1] * t->shape.dim[n - 2],
            t->stride[n - 2], t->stride[n - 1]};
    return t;
}

static int64_t batch_of(choir_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim - 2; i++)
        n *= shape.dim[i];
    return n;
}

/* a (M, K), or a batch of such matrices; b (K, N), one for all of them or one for each. */
struct product {
    int64_t batch, m, n, k;
};

static struct product product_of(const choir_tensor *a, const choir_tensor *b)
{
    struct product p = {
        batch_of(a->shape), a->shape.dim[a->shape.ndim - 2], choir__cols(b), choir__cols(a)};
    if (b->shape.ndim == 2) {
        p.m *= p.batch;
        p.batch = 1;
    }
    return p;
}

/* Returns row-major memory for in[i]'s gradient, or NULL if it is not needed. */
static choir_tensor *row_major_dest(choir__record *r, int i, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, i);
    if (g && !choir__is_contiguous(g))
        g = choir__tensor_new(sink->scope, choir__device_of(g), g->dtype, g->shape);
    return g && !g->poisoned ? g : NULL;
}

/* ga = gy b^T */
static void matmul_backward_input(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *a = r->in[0], *b = r->in[1], *ga = row_major_dest(r, 0, sink);
    struct product p = product_of(a, b);
    struct matrix mb, mg;
    if (!ga || as_matrices(sink->scope, gy, &mg)->poisoned ||
        as_matrices(sink->scope, b, &mb)->poisoned)
        return;
    launch(ga, b->dtype, (struct matrix){choir__data(ga), p.m * p.k, p.k, 1}, mg,
        transposed(mb), NULL, p.batch, p.m, p.k, p.n);
    sink->give(sink, r, 0, ga);
}

/* gb = a^T gy; put off if b is a parameter */
static void matmul_backward_weight(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *a = r->in[0], *b = r->in[1], *gb = row_major_dest(r, 1, sink);
    struct product p = product_of(a, b);
    struct matrix ma, mg;
    if (!gb || as_matrices(sink->scope, gy, &mg)->poisoned ||
        as_matrices(sink->scope, a, &ma)->poisoned)
        return;
    launch(gb, a->dtype, (struct matrix){choir__data(gb), p.k * p.n, p.n, 1}, transposed(ma),
        mg, NULL, p.batch, p.k, p.n, p.m);
    sink->give(sink, r, 1, gb);
}

/* Computes y = a b; an error is recorded in the scope. */
static void launch_matmul(choir_tensor *y, choir_tensor *a, choir_tensor *b)
{
    struct matrix ma, mb;
    if (as_matrices(y->scope, a, &ma)->poisoned || as_matrices(y->scope, b, &mb)->poisoned)
        return;
    struct product p = product_of(a, b);
    launch(y, a->dtype, (struct matrix){choir__data(y), p.m * p.n, p.n, 1}, ma, mb, NULL,
        p.batch, p.m, p.n, p.k);
}

static void matmul_again(choir__record *r)
{
    launch_matmul(r->out, r->in[0], r->in[1]);
}

static const choir__op matmul_op = {
    .name = "matmul",
    .cast = CHOIR__CAST_LOWER,
    .half = 3,
    .half_native = 3,
    .backward_input = matmul_backward_input,
    .backward_weight = matmul_backward_weight,
    .again = matmul_again,
    .reads_in = 3,
    .weights_in = 2,
};

choir_tensor *choir_matmul(choir_tensor *a, choir_tensor *b)
{
    choir_tensor *poisoned, *in[2] = {a, b};
    choir_scope *scope = choir__begin(&matmul_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    a = in[0], b = in[1];
    choir_shape sa = a->shape, sb = b->shape, shape = sa;
    bool fits =
        sa.ndim >= 2 && sb.ndim >= 2 && choir__cols(a) == sb.dim[sb.ndim - 2] &&
        (sb.ndim == 2 || (sa.ndim == sb.ndim && !memcmp(sa.dim, sb.dim,
                                                    (size_t)(sa.ndim - 2) * sizeof sa.dim[0])));
    if (!fits || !choir__is_float(a->dtype) || a->dtype != b->dtype)
        return choir__shape_error(matmul_op.name, scope, in, 2,
            "expected (..., M, K) by (..., K, N), one dtype, equal leading dimensions; "
            "or by (K, N)");
    shape.dim[shape.ndim - 1] = choir__cols(b);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(a), a->dtype, shape);
    if (y->poisoned)
        return y;
    launch_matmul(y, a, b);
    choir__record_op(&matmul_op, y, in, 2);
    return choir__as_stored(y);
}
