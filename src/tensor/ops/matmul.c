/* Matrix products: matmul. A transposed operand is a view with exchanged strides, so backward
 * copies nothing. 16-bit operands stay 16-bit: the kernel adds up in f32, and a gradient that
 * goes to f32 memory (a parameter's) is never rounded to 16 bits. */
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/ops/product.h"

static void launch(choir_tensor *c, choir_dtype dtype, choir__matrix mc, choir__matrix a,
    choir__matrix b, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    choir__k_matmul args = choir__matmul_args(c, dtype, mc, a, b, batch, m, n, k);
    choir__launch(choir__device_of(c), dtype, matmul, &args);
}

/* Returns the matrices of t, made row-major unless a transposed view suffices. */
static choir_tensor *as_matrices(choir_scope *scope, choir_tensor *t, choir__matrix *m)
{
    int n = t->shape.ndim;
    bool swapped = n == 2 && t->stride[0] == 1 && t->stride[1] >= t->shape.dim[0];
    if (!swapped)
        t = choir__dense_rows(scope, t);
    if (!t->poisoned)
        *m = (choir__matrix){choir__data(t), t->shape.dim[n - 1] * t->shape.dim[n - 2],
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
static choir_tensor *row_major_dest(choir__tape_entry *r, int i, choir__sink *sink)
{
    choir_tensor *g = sink->dest(sink, r, i);
    if (g && !choir__is_contiguous(g))
        g = choir__tensor_new(sink->scope, choir__device_of(g), g->dtype, g->shape);
    return g && !g->poisoned ? g : NULL;
}

/* ga = gy b^T */
static void matmul_backward_input(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *a = r->in[0], *b = r->in[1], *ga = row_major_dest(r, 0, sink);
    struct product p = product_of(a, b);
    choir__matrix mb, mg;
    if (!ga || as_matrices(sink->scope, gy, &mg)->poisoned ||
        as_matrices(sink->scope, b, &mb)->poisoned)
        return;
    launch(ga, b->dtype, (choir__matrix){choir__data(ga), p.m * p.k, p.k, 1}, mg,
        choir__transposed(mb), p.batch, p.m, p.k, p.n);
    sink->give(sink, r, 0, ga);
}

/* gb = a^T gy; put off if b is a parameter */
static void matmul_backward_weight(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *a = r->in[0], *b = r->in[1], *gb = row_major_dest(r, 1, sink);
    struct product p = product_of(a, b);
    choir__matrix ma, mg;
    if (!gb || as_matrices(sink->scope, gy, &mg)->poisoned ||
        as_matrices(sink->scope, a, &ma)->poisoned)
        return;
    launch(gb, a->dtype, (choir__matrix){choir__data(gb), p.k * p.n, p.n, 1},
        choir__transposed(ma), mg, p.batch, p.k, p.n, p.m);
    sink->give(sink, r, 1, gb);
}

static void matmul_again(choir__tape_entry *r)
{
    choir_tensor *a = r->in[0], *b = r->in[1], *y = r->out;
    choir__matrix ma, mb;
    if (as_matrices(r->scope, a, &ma)->poisoned || as_matrices(r->scope, b, &mb)->poisoned)
        return;
    struct product p = product_of(a, b);
    launch(y, a->dtype, (choir__matrix){choir__data(y), p.m * p.n, p.n, 1}, ma, mb, p.batch,
        p.m, p.n, p.k);
}

static const choir__op matmul_op = {
    .name = "matmul",
    .cast = CHOIR__CAST_LOWER,
    .half = 3,
    .half_native = 3,
    .backward_input = matmul_backward_input,
    .backward_weight = matmul_backward_weight,
    .recompute = matmul_again,
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
            "expected floating (..., M, K) by (..., K, N), one dtype, equal leading "
            "dimensions; or by (K, N)");
    shape.dim[shape.ndim - 1] = choir__cols(b);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(a), a->dtype, shape);
    return choir__computed(&matmul_op, y, in, 2, (choir__keeps){0});
}
