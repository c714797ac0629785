/* Softmax, and scaled dot-product attention made of it and two batched products.
 *
 *     S = q k^T / sqrt(D)      P = softmax(S)      y = P v
 *
 * q, k and v may be three tensors (B, H, T, D) or the thirds of one (B, T, 3C); either way a
 * head is a strided matrix, and nothing is copied. P (B, H, T, T) is kept for backward:
 *
 *     gv = P^T gy     gP = gy v^T     gS = P (gP - rowsum(gP P)) / sqrt(D)     gq = gS k     gk
 * = gS^T q */
#include <math.h>
#include <string.h>

#include "tensor/tensor.h"

/* --- softmax over rows --- */

static void softmax_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *y = r->saved[0], *gx = sink->dest(sink, r, 0);
    if (!gx)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    choir_tensor *out = choir__is_contiguous(gx) ? gx
                                                 : choir__tensor_new(sink->scope,
                                                       choir__device_of(y), y->dtype, y->shape);
    choir__k_softmax_backward args = {.y = choir__data(y),
        .gy = choir__data(gy),
        .gx = choir__data(out),
        .rows = choir__rows(y),
        .cols = choir__cols(y),
        .period = 1,
        .scale = 1,
        .log = *(const bool *)r->attrs,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, softmax_backward, &args);
    sink->give(sink, r, 0, out);
}

static const choir__op softmax_op = {.name = "softmax", .backward = softmax_backward};

static choir_tensor *softmax(const char *name, choir_tensor *x, bool logarithm)
{
    choir_dtype stored = x->dtype;
    choir_tensor *poisoned;
    x = choir__as_computed(x);
    choir_scope *scope = choir__begin(name, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (x->shape.ndim < 1 || !choir__is_float(x->dtype))
        return choir__shape_error(name, scope, &x, 1, "wants a floating tensor of rows");
    choir_tensor *dense = choir__dense_rows(scope, x);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    if (y->poisoned || dense->poisoned)
        return y->poisoned ? y : dense;
    choir__k_softmax args = {.x = choir__data(dense),
        .y = choir__data(y),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .period = 1,
        .scale = 1,
        .log = logarithm,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, softmax, &args);
    choir__record *r = choir__record_op(&softmax_op, y, &x, 1);
    if (r) {
        choir__record_attrs(r, &logarithm, sizeof logarithm);
        r->saved[0] = y;
    }
    return choir__as_stored(y, stored);
}

choir_tensor *choir_softmax(choir_tensor *x)
{
    return softmax("softmax", x, false);
}

choir_tensor *choir_log_softmax(choir_tensor *x)
{
    return softmax("log_softmax", x, true);
}

/* --- heads: strided matrices, B x H of them --- */

struct heads {
    void *p;
    int64_t b, h, t; /* strides: batch, head, position */
};

struct sizes {
    int64_t b, h, t, s, d; /* batch, heads, queries, keys, width of a head */
    bool causal;
};

static struct heads heads_of(const choir_tensor *x) /* (B, H, T, D) */
{
    return (struct heads){choir__data(x), x->stride[0], x->stride[1], x->stride[2]};
}

/* The third number `which` of packed (B, T, 3C), C = H D. */
static struct heads third_of(const choir_tensor *qkv, struct sizes n, int which)
{
    int64_t width = 3 * n.h * n.d;
    char *p = choir__data(qkv);
    p += (size_t)(which * n.h * n.d) * choir_dtype_size(qkv->dtype);
    return (struct heads){p, n.t * width, n.d, width};
}

static struct heads scores_of(const choir_tensor *p) /* (B, H, T, S), contiguous */
{
    int64_t t = p->shape.dim[2], s = p->shape.dim[3];
    return (struct heads){choir__data(p), p->shape.dim[1] * t * s, t * s, s};
}

/* c = a b over all heads; a_turned, b_turned: the operand's transpose is meant. */
static void product(choir_device *device, choir_dtype dtype, struct sizes n, struct heads c,
    struct heads a, bool a_turned, struct heads b, bool b_turned, int64_t rows, int64_t cols,
    int64_t inner)
{
    choir__k_matmul args = {
        .a = a.p,
        .b = b.p,
        .c = c.p,
        .batch0 = n.b,
        .batch1 = n.h,
        .m = rows,
        .n = cols,
        .k = inner,
        .a_row = a_turned ? 1 : a.t,
        .a_col = a_turned ? a.t : 1,
        .b_row = b_turned ? 1 : b.t,
        .b_col = b_turned ? b.t : 1,
        .c_row = c.t,
        .a_batch0 = a.b,
        .a_batch1 = a.h,
        .b_batch0 = b.b,
        .b_batch1 = b.h,
        .c_batch0 = c.b,
        .c_batch1 = c.h,
        .dtype = dtype,
    };
    choir__launch(device, dtype, matmul, &args);
}

static float scale_of(struct sizes n)
{
    return (float)(1.0 / sqrt((double)n.d));
}

/* y = softmax(q k^T / sqrt(D)) v; returns P. */
static choir_tensor *forward(choir_scope *scope, choir_device *device, choir_dtype dtype,
    struct sizes n, struct heads q, struct heads k, struct heads v, struct heads y)
{
    choir_tensor *p = choir__tensor_new(scope, device, dtype, choir_dims(n.b, n.h, n.t, n.s));
    if (p->poisoned)
        return p;
    product(device, dtype, n, scores_of(p), q, false, k, true, n.t, n.s, n.d);
    choir__k_softmax args = {.x = choir__data(p),
        .y = choir__data(p),
        .rows = n.b * n.h * n.t,
        .cols = n.s,
        .period = n.t,
        .scale = scale_of(n),
        .causal = n.causal,
        .dtype = dtype};
    choir__launch(device, dtype, softmax, &args);
    product(device, dtype, n, y, scores_of(p), false, v, false, n.t, n.d, n.s);
    return p;
}

static void backward(choir_scope *scope, choir_tensor *p, struct sizes n, struct heads q,
    struct heads k, struct heads v, struct heads gy, struct heads gq, struct heads gk,
    struct heads gv)
{
    choir_device *device = choir__device_of(p);
    choir_tensor *gp = choir__tensor_like(scope, p);
    if (gp->poisoned)
        return;
    product(device, p->dtype, n, gv, scores_of(p), true, gy, false, n.s, n.d, n.t);
    product(device, p->dtype, n, scores_of(gp), gy, false, v, true, n.t, n.s, n.d);
    choir__k_softmax_backward args = {.y = choir__data(p),
        .gy = choir__data(gp),
        .gx = choir__data(gp),
        .rows = n.b * n.h * n.t,
        .cols = n.s,
        .period = n.t,
        .scale = scale_of(n),
        .causal = n.causal,
        .dtype = p->dtype};
    choir__launch(device, p->dtype, softmax_backward, &args);
    product(device, p->dtype, n, gq, scores_of(gp), false, k, false, n.t, n.d, n.s);
    product(device, p->dtype, n, gk, scores_of(gp), true, q, false, n.s, n.d, n.t);
}

/* --- three tensors --- */

static void attention_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct sizes *n = r->attrs;
    choir_tensor *g[3];
    if (gy->stride[3] != 1)
        gy = choir__dense_rows(sink->scope, gy);
    for (int i = 0; i < 3; i++)
        g[i] = choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, r->in[i]->shape);
    if (g[0]->poisoned || g[1]->poisoned || g[2]->poisoned)
        return;
    backward(sink->scope, r->saved[0], *n, heads_of(r->saved[1]), heads_of(r->saved[2]),
        heads_of(r->saved[3]), heads_of(gy), heads_of(g[0]), heads_of(g[1]), heads_of(g[2]));
    for (int i = 0; i < 3; i++)
        if (choir__wanted(r, i))
            sink->give(sink, r, i, g[i]);
}

static const choir__op attention_op = {
    .name = "attention", .backward = attention_backward, .reads_in = 7};

/* (B, H, T, D) whose memory is (B, T, H, D): the transpose that follows is then free. */
static choir_tensor *by_position(
    choir_scope *scope, choir_device *device, choir_dtype dtype, struct sizes n)
{
    choir_tensor *y = choir__tensor_new(scope, device, dtype, choir_dims(n.b, n.h, n.t, n.d));
    int64_t stride[4] = {n.t * n.h * n.d, n.d, n.h * n.d, 1};
    memcpy(y->stride, stride, sizeof stride);
    return y;
}

choir_tensor *choir_attention(choir_tensor *q, choir_tensor *k, choir_tensor *v, bool causal)
{
    choir_dtype stored = q->dtype;
    choir_tensor *poisoned;
    choir_tensor *in[3] = {choir__as_computed(q), choir__as_computed(k), choir__as_computed(v)};
    choir_scope *scope = choir__begin("attention", in, 3, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape sq = q->shape, sk = k->shape;
    if (sq.ndim != 4 || sk.ndim != 4 || !choir__same_shape(sk, v->shape) ||
        sq.dim[0] != sk.dim[0] || sq.dim[1] != sk.dim[1] || sq.dim[3] != sk.dim[3] ||
        (causal && sq.dim[2] != sk.dim[2]) || in[0]->dtype != in[1]->dtype ||
        in[0]->dtype != in[2]->dtype || !choir__is_float(in[0]->dtype))
        return choir__shape_error("attention", scope, in, 3,
            "wants q (B, H, T, D), k and v (B, H, S, D) of one dtype, S = T if causal");
    struct sizes n = {sq.dim[0], sq.dim[1], sq.dim[2], sk.dim[2], sq.dim[3], causal};
    choir_tensor *x[3], *y = by_position(scope, choir__device_of(q), in[0]->dtype, n);
    if (y->poisoned)
        return y;
    for (int i = 0; i < 3; i++) {
        x[i] = in[i]->stride[3] == 1 ? in[i] : choir__dense_rows(scope, in[i]);
        if (x[i]->poisoned)
            return x[i];
    }
    choir_tensor *p = forward(scope, choir__device_of(q), in[0]->dtype, n, heads_of(x[0]),
        heads_of(x[1]), heads_of(x[2]), heads_of(y));
    if (p->poisoned)
        return p;
    choir__record *r = choir__record_op(&attention_op, y, in, 3);
    if (r) {
        choir__record_attrs(r, &n, sizeof n);
        r->saved[0] = p;
        memcpy(&r->saved[1], x, sizeof x);
    } else {
        choir__tensor_release(p);
    }
    return choir__as_stored(y, stored);
}

/* --- one packed tensor --- */

static struct heads packed_rows(const choir_tensor *y, struct sizes n) /* (B, T, C) */
{
    int64_t width = n.h * n.d;
    return (struct heads){choir__data(y), n.t * width, n.d, width};
}

static void self_attention_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const struct sizes *n = r->attrs;
    choir_tensor *qkv = r->saved[1], *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    backward(sink->scope, r->saved[0], *n, third_of(qkv, *n, 0), third_of(qkv, *n, 1),
        third_of(qkv, *n, 2), packed_rows(gy, *n), third_of(g, *n, 0), third_of(g, *n, 1),
        third_of(g, *n, 2));
    sink->give(sink, r, 0, g);
}

static const choir__op self_attention_op = {
    .name = "self_attention", .backward = self_attention_backward, .reads_in = 1};

choir_tensor *choir_self_attention(choir_tensor *qkv, int heads, bool causal)
{
    choir_dtype stored = qkv->dtype;
    choir_tensor *poisoned, *in = choir_contiguous(choir__as_computed(qkv));
    choir_scope *scope = choir__begin("self_attention", &in, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = in->shape;
    if (shape.ndim != 3 || !choir__is_float(in->dtype) || heads < 1 ||
        shape.dim[2] % (3 * heads))
        return choir__shape_error(
            "self_attention", scope, &in, 1, "wants (B, T, 3C) with C a multiple of the heads");
    int64_t c = shape.dim[2] / 3;
    struct sizes n = {shape.dim[0], heads, shape.dim[1], shape.dim[1], c / heads, causal};
    choir_tensor *y = choir__tensor_new(
        scope, choir__device_of(in), in->dtype, choir_dims(shape.dim[0], shape.dim[1], c));
    if (y->poisoned)
        return y;
    choir_tensor *p = forward(scope, choir__device_of(in), in->dtype, n, third_of(in, n, 0),
        third_of(in, n, 1), third_of(in, n, 2), packed_rows(y, n));
    if (p->poisoned)
        return p;
    choir__record *r = choir__record_op(&self_attention_op, y, &in, 1);
    if (r) {
        choir__record_attrs(r, &n, sizeof n);
        r->saved[0] = p;
        r->saved[1] = in;
    } else {
        choir__tensor_release(p);
    }
    return choir__as_stored(y, stored);
}
