/* Second derivatives of sums, products, choices and views: each function is an op's backward,
 * written in ops. */
#include "tensor/ops/derive/derive.h"

#include <choir/select.h>

#include "tensor/launch.h"
#include "tensor/ops/sliced/sliced.h"

static choir_tensor *sum_to(choir_tensor *g, choir_shape shape)
{
    while (choir_tensor_ndim(g) > shape.ndim)
        g = choir_sum_dim(g, 0);
    for (int d = 0; d < shape.ndim; d++)
        if (shape.dim[d] == 1 && choir_tensor_size(g, d) != 1) {
            choir_shape kept = choir_tensor_shape(g);
            kept.dim[d] = 1;
            g = choir_reshape(choir_sum_dim(g, d), kept);
        }
    return g;
}

/* --- copies and views --- */

void choir__derive_same(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    (void)r;
    gx[0] = gy;
}

void choir__derive_cast(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] = choir_cast(gy, r->in[0]->dtype);
}

void choir__derive_to(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] = choir_to(gy, choir__device_of(r->in[0]));
}

void choir__derive_reshape(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] = choir_reshape(gy, r->in[0]->shape);
}

void choir__derive_permute(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const choir_shape *order = r->attrs;
    choir_shape back = *order;
    for (int i = 0; i < order->ndim; i++)
        back.dim[order->dim[i]] = i;
    gx[0] = choir_permute(gy, back);
}

void choir__derive_expand(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] = sum_to(gy, r->in[0]->shape);
}

/* --- sums --- */

void choir__derive_sum(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const choir_shape *with_ones = r->attrs;
    gx[0] = choir_expand(choir_reshape(gy, *with_ones), r->in[0]->shape);
}

/* The running sum from the end. */
void choir__derive_cumsum(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] =
        choir_flip(choir_cumsum(choir_flip(gy, *(const int *)r->attrs), *(const int *)r->attrs),
            *(const int *)r->attrs);
}

/* --- two operands, which broadcast --- */

static void give(const choir__tape_entry *r, int i, choir_tensor *g, choir_tensor **gx)
{
    gx[i] = sum_to(g, r->in[i]->shape);
}

void choir__derive_add(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            give(r, i, gy, gx);
}

void choir__derive_sub(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    if (choir__wanted(r, 0))
        give(r, 0, gy, gx);
    if (choir__wanted(r, 1))
        give(r, 1, choir_neg(gy), gx);
}

void choir__derive_mul(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            give(r, i, choir_mul(gy, r->in[1 - i]), gx);
}

void choir__derive_div(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *over = choir_div(gy, r->in[1]);
    if (choir__wanted(r, 0))
        give(r, 0, over, gx);
    if (choir__wanted(r, 1))
        give(r, 1, choir_neg(choir_mul(over, r->out)), gx);
}

/* gy where a is the greater, half of it where both are equal */
static choir_tensor *share_of(choir_tensor *gy, choir_tensor *a, choir_tensor *b)
{
    choir_tensor *g = choir_masked_fill(gy, choir_lt(a, b), 0);
    return choir_where(choir_eq(a, b), choir_scale(g, 0.5), g);
}

void choir__derive_maximum(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            give(r, i, share_of(gy, r->in[i], r->in[1 - i]), gx);
}

void choir__derive_minimum(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    for (int i = 0; i < 2; i++)
        if (choir__wanted(r, i))
            give(r, i, share_of(gy, r->in[1 - i], r->in[i]), gx);
}

void choir__derive_power(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *a = choir__derive_in(r, 0, gy), *b = choir__derive_in(r, 1, gy);
    if (choir__wanted(r, 0)) {
        choir_tensor *slope = choir_mul(b, choir_pow_tensor(a, choir_affine(b, 1, -1)));
        slope = choir_masked_fill(slope, choir_compare(b, CHOIR_EQ, 0), 0);
        give(r, 0, choir_mul(gy, slope), gx);
    }
    if (choir__wanted(r, 1)) {
        choir_tensor *flat =
            choir_logical_and(choir_compare(a, CHOIR_EQ, 0), choir_compare(b, CHOIR_GE, 0));
        choir_tensor *slope = choir_masked_fill(choir_mul(r->out, choir_log(a)), flat, 0);
        give(r, 1, choir_mul(gy, slope), gx);
    }
}

/* in: b, the mask, and a unless that is a number */
void choir__derive_where(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *mask = choir__derive_in(r, 1, gy);
    if (choir__wanted(r, 0))
        give(r, 0, choir_masked_fill(gy, mask, 0), gx);
    if (r->count > 2 && choir__wanted(r, 2))
        give(r, 2, choir_masked_fill(gy, choir_logical_not(mask), 0), gx);
}

/* --- products --- */

static choir_tensor *turned(choir_tensor *x)
{
    return choir_transpose(x, -1, -2);
}

/* Joins all dimensions but the last: (..., C) -> (rows, C). */
static choir_tensor *as_rows(choir_tensor *x)
{
    return choir_reshape(x, choir_dims(-1, choir__cols(x)));
}

void choir__derive_matmul(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *a = choir__derive_in(r, 0, gy), *b = choir__derive_in(r, 1, gy);
    if (choir__wanted(r, 0))
        gx[0] = choir_matmul(gy, turned(b));
    if (choir__wanted(r, 1))
        gx[1] = b->shape.ndim == 2 ? choir_matmul(turned(as_rows(a)), as_rows(gy))
                                   : choir_matmul(turned(a), gy);
}

void choir__derive_linear(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    bool in_out = ((const choir__linear_of *)r->attrs)->in_out;
    choir_tensor *x = choir__derive_in(r, 0, gy), *w = choir__derive_in(r, 1, gy);
    choir_tensor *rows = as_rows(gy);
    if (choir__wanted(r, 0))
        gx[0] = choir_reshape(choir_matmul(rows, in_out ? turned(w) : w), x->shape);
    if (choir__wanted(r, 1))
        gx[1] = in_out ? choir_matmul(turned(as_rows(x)), rows)
                       : choir_matmul(turned(rows), as_rows(x));
    if (choir__wanted(r, 2))
        gx[2] = choir_sum_dim(rows, 0);
}

/* --- softmax --- */

static choir_tensor *sum_kept(choir_tensor *x)
{
    choir_shape kept = choir_tensor_shape(x);
    kept.dim[kept.ndim - 1] = 1;
    return choir_reshape(choir_sum_dim(x, -1), kept);
}

void choir__derive_softmax(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *y = r->out;
    gx[0] = choir_mul(y, choir_sub(gy, sum_kept(choir_mul(gy, y))));
}

void choir__derive_log_softmax(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    gx[0] = choir_sub(gy, choir_mul(choir_exp(r->out), sum_kept(gy)));
}
