/* Softmax, and scaled dot-product attention. Attention is one kernel forward and one backward.
 * q, k and v may be three tensors (B, H, T, D) or the thirds of one (B, T, 3C); either way a
 * head is a strided matrix. Forward keeps the result and the log sum exp of each query's scores
 * for backward, which computes the scores again. */
#include <math.h>
#include <string.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/segment.h"

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
        .log = *(const bool *)r->attrs,
        .dtype = y->dtype};
    choir__launch(choir__device_of(y), y->dtype, softmax_backward, &args);
    sink->give(sink, r, 0, out);
}

static void launch_softmax(choir_tensor *y, const choir_tensor *x, bool logarithm)
{
    choir__k_softmax args = {.x = choir__data(x),
        .y = choir__data(y),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .log = logarithm,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, softmax, &args);
}

static void softmax_again(choir__record *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (!x->poisoned)
        launch_softmax(r->out, x, *(const bool *)r->attrs);
}

#define SOFTMAX(title)                                                                         \
    {                                                                                          \
        .name = title, .cast = CHOIR__CAST_F32, .half_native = CHOIR__ALL_IN,                  \
        .backward = softmax_backward, .again = softmax_again                                   \
    }
static const choir__op softmax_op = SOFTMAX("softmax"), log_softmax_op = SOFTMAX("log_softmax");

static choir_tensor *softmax(choir_tensor *x, bool logarithm)
{
    const choir__op *op = logarithm ? &log_softmax_op : &softmax_op;
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (x->shape.ndim < 1 || !choir__is_float(x->dtype))
        return choir__shape_error(op->name, scope, &x, 1, "expected a floating tensor of rows");
    choir_tensor *dense = choir__dense_rows(scope, x);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    if (y->poisoned || dense->poisoned)
        return y->poisoned ? y : dense;
    launch_softmax(y, dense, logarithm);
    choir__record *r = choir__record_op(op, y, &x, 1);
    if (r) {
        choir__record_attrs(r, &logarithm, sizeof logarithm);
        r->saved[0] = y;
    }
    return choir__as_stored(y);
}

choir_tensor *choir_softmax(choir_tensor *x)
{
    return softmax(x, false);
}

choir_tensor *choir_log_softmax(choir_tensor *x)
{
    return softmax(x, true);
}

/* --- attention: what its two forms share --- */

struct operands {
    choir__heads q, k, v;
    choir__attention_bias bias;
    choir__attention_shape n;
    choir_dtype dtype;
};

static choir__heads heads_of(const choir_tensor *x) /* (B, H, T, D) */
{
    return (choir__heads){choir__data(x), x->stride[0], x->stride[1], x->stride[2]};
}

/* lse: log sum exp (B, H, T), which 16 bits cannot hold */
static void launch(const struct operands *x, choir__heads y, choir_tensor *lse)
{
    if (!lse->count)
        return;
    choir__k_attention args = {.q = x->q,
        .k = x->k,
        .v = x->v,
        .y = y,
        .bias = x->bias,
        .lse = choir__data(lse),
        .n = x->n,
        .dtype = x->dtype};
    choir__launch(choir__device_of(lse), x->dtype, attention, &args);
}

/* Returns log sum exp. */
static choir_tensor *forward(
    choir_scope *scope, choir_device *device, const struct operands *x, choir__heads y)
{
    choir_tensor *lse = choir__tensor_new(scope, device,
        choir__is_half(x->dtype) ? CHOIR_F32 : x->dtype, choir_dims(x->n.b, x->n.h, x->n.t));
    if (!lse->poisoned)
        launch(x, y, lse);
    return lse;
}

/* Returns the result if backward needs it. Processors do not, so a result that will be rounded
 * need not be kept for them. */
static choir_tensor *saved_result(choir_tensor *y)
{
    return choir__to_be_rounded(y) ? NULL : y;
}

/* y.p may be NULL. */
static void backward(const struct operands *x, const choir_tensor *lse, choir__heads y,
    choir__heads gy, const choir__heads g[3], choir__attention_bias gbias)
{
    choir__k_attention_backward args = {.q = x->q,
        .k = x->k,
        .v = x->v,
        .y = y,
        .gy = gy,
        .gq = g[0],
        .gk = g[1],
        .gv = g[2],
        .bias = x->bias,
        .gbias = gbias,
        .lse = choir__data(lse),
        .n = x->n,
        .dtype = x->dtype};
    if (lse->count)
        choir__launch(choir__device_of(lse), x->dtype, attention_backward, &args);
}

/* --- three tensors, and a bias --- */

enum { Q, K, V, BIAS, OPERANDS };
enum { LSE = OPERANDS, RESULT }; /* saved after the operands */

static choir__attention_bias bias_of(const choir_tensor *x) /* (P, H or 1, T or 1, S) */
{
    const int64_t *dim = x->shape.dim;
    return (choir__attention_bias){choir__data(x), dim[0],
        {x->stride[0], dim[1] > 1 ? x->stride[1] : 0, dim[2] > 1 ? x->stride[2] : 0}};
}

static struct operands operands_of(
    choir_tensor *const x[OPERANDS], const choir__attention_shape *n)
{
    struct operands o = {heads_of(x[Q]), heads_of(x[K]), heads_of(x[V]), {0}, *n, x[Q]->dtype};
    if (x[BIAS])
        o.bias = bias_of(x[BIAS]);
    return o;
}

/* Makes a gradient with x's memory order, so that the backward of the views before x copies
 * nothing. */
static choir_tensor *gradient_like(choir_scope *scope, choir_tensor *x)
{
    choir_tensor *g = choir__tensor_like(scope, x);
    if (g->poisoned || g->stride[3] == 1)
        return g;
    return choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
}

static void attention_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    struct operands x = operands_of(r->saved, r->attrs);
    choir_tensor *g[OPERANDS] = {0};
    choir__heads gx[3] = {{0}};
    choir__attention_bias gbias = {0};
    if (gy->stride[3] != 1)
        gy = choir__dense_rows(sink->scope, gy);
    for (int i = 0; i < r->count; i++) {
        if (!choir__wanted(r, i))
            continue;
        g[i] = i == BIAS ? choir__tensor_new(
                               sink->scope, choir__device_of(gy), gy->dtype, r->in[i]->shape)
                         : gradient_like(sink->scope, r->in[i]);
        if (g[i]->poisoned)
            return;
        if (i < BIAS)
            gx[i] = heads_of(g[i]);
    }
    if (g[BIAS]) {
        choir__launch_fill(g[BIAS], 0);
        gbias = bias_of(g[BIAS]);
    }
    for (int i = 0; i < BIAS && !r->out->count; i++)
        if (g[i]) /* no kernel runs: there are keys but no queries */
            choir__launch_fill(g[i], 0);
    choir_tensor *y = r->saved[RESULT];
    backward(&x, r->saved[LSE], y ? heads_of(y) : (choir__heads){0}, heads_of(gy), gx, gbias);
    for (int i = 0; i < r->count; i++)
        if (g[i])
            sink->give(sink, r, i, g[i]);
}

static void attention_again(choir__record *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->saved[i])
            choir__copy_again(r->saved[i], r->in[i]);
    struct operands x = operands_of(r->saved, r->attrs);
    launch(&x, heads_of(r->out), r->saved[LSE]);
}

static const choir__op attention_op = {.name = "attention",
    .cast = CHOIR__CAST_LOWER,
    .half_native = CHOIR__ALL_IN,
    .backward = attention_backward,
    .again = attention_again,
    .again_saved = 31,
    .reads_in = 15};

/* Makes a tensor (B, H, T, D) with the memory order (B, T, H, D): the transpose that follows is
 * then free. */
static choir_tensor *by_position(choir_scope *scope, choir_device *device, choir_dtype dtype,
    const choir__attention_shape *n)
{
    choir_tensor *y =
        choir__tensor_new(scope, device, dtype, choir_dims(n->b, n->h, n->t, n->d));
    int64_t stride[4] = {n->t * n->h * n->d, n->d, n->h * n->d, 1};
    memcpy(y->stride, stride, sizeof stride);
    return y;
}

static const char *wrong_operands(choir_tensor *const *in, choir_attention_opts opts)
{
    choir_shape q = in[Q]->shape, k = in[K]->shape;
    if (q.ndim != 4 || k.ndim != 4 || !choir__same_shape(k, in[V]->shape) ||
        q.dim[0] != k.dim[0] || q.dim[3] != k.dim[3])
        return "expected q (B, H, T, D), k and v (B, G, S, D)";
    if (!k.dim[1] || q.dim[1] % k.dim[1])
        return "expected a number of heads of k and v that divides the number of q's heads";
    if (in[Q]->dtype != in[K]->dtype || in[Q]->dtype != in[V]->dtype ||
        !choir__is_float(in[Q]->dtype))
        return "expected floating q, k and v of one dtype";
    if (opts.causal && q.dim[2] != k.dim[2])
        return "causal attention: expected as many keys as queries";
    if (opts.window < 0 || (opts.window && !opts.causal))
        return "expected a window of 0 or more, and above 0 for causal attention alone";
    if (!k.dim[2])
        return "expected 1 key or more";
    return NULL;
}

static const char *wrong_bias(choir_tensor *const *in)
{
    if (!in[BIAS])
        return NULL;
    choir_shape q = in[Q]->shape, bias = in[BIAS]->shape;
    if (bias.ndim != 4 || !bias.dim[0] || q.dim[0] % bias.dim[0] ||
        (bias.dim[1] != 1 && bias.dim[1] != q.dim[1]) ||
        (bias.dim[2] != 1 && bias.dim[2] != q.dim[2]) || bias.dim[3] != in[K]->shape.dim[2])
        return "expected a bias (P, H or 1, T or 1, S), P a divisor of the batch";
    return in[BIAS]->dtype == in[Q]->dtype ? NULL : "expected a bias of q's dtype";
}

choir_attention_opts choir_attention_defaults(void)
{
    return (choir_attention_opts){0};
}

choir_tensor *choir_attention_with(
    choir_tensor *q, choir_tensor *k, choir_tensor *v, choir_attention_opts opts)
{
    choir_tensor *poisoned, *x[OPERANDS] = {0};
    choir_tensor *in[OPERANDS] = {q, k, v, opts.bias};
    int count = opts.bias ? OPERANDS : BIAS;
    choir_scope *scope = choir__begin(&attention_op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    const char *wrong = wrong_operands(in, opts);
    if (wrong || (wrong = wrong_bias(in)))
        return choir__shape_error(attention_op.name, scope, in, count, wrong);
    choir_device *device = choir__device_of(in[Q]);
    const int64_t *dq = in[Q]->shape.dim, *dk = in[K]->shape.dim;
    choir__attention_shape n = {.b = dq[0],
        .h = dq[1],
        .g = dk[1],
        .t = dq[2],
        .s = dk[2],
        .d = dq[3],
        .window = opts.window,
        .scale = opts.scale != 0 ? opts.scale : (float)(1.0 / sqrt((double)dq[3])),
        .causal = opts.causal};
    choir_tensor *y = by_position(scope, device, in[Q]->dtype, &n);
    for (int i = 0; i < count && !y->poisoned; i++) {
        x[i] = in[i]->stride[3] == 1 ? in[i] : choir__dense_rows(scope, in[i]);
        if (x[i]->poisoned)
            return x[i];
    }
    if (y->poisoned)
        return y;
    struct operands o = operands_of(x, &n);
    choir_tensor *lse = forward(scope, device, &o, heads_of(y));
    if (lse->poisoned)
        return lse;
    choir__record *r = choir__record_op(&attention_op, y, in, count);
    if (r) {
        choir__record_attrs(r, &n, sizeof n);
        memcpy(r->saved, x, sizeof x);
        r->saved[LSE] = lse;
        r->saved[RESULT] = saved_result(y);
    } else {
        choir__tensor_release(lse);
    }
    return choir__as_stored(y);
}

choir_tensor *choir_attention(choir_tensor *q, choir_tensor *k, choir_tensor *v, bool causal)
{
    choir_attention_opts opts = choir_attention_defaults();
    opts.causal = causal;
    return choir_attention_with(q, k, v, opts);
}

/* --- one packed tensor --- */

/* Returns third `which` of packed (B, T, 3C), C = H D. */
static choir__heads third_of(
    const choir_tensor *qkv, const choir__attention_shape *n, int which)
{
    int64_t width = 3 * n->h * n->d;
    char *p = choir__data(qkv);
    p += (size_t)(which * n->h * n->d) * choir_dtype_size(qkv->dtype);
    return (choir__heads){p, n->t * width, n->d, width};
}

static choir__heads packed_rows(
    const choir_tensor *y, const choir__attention_shape *n) /* (B, T, C) */
{
    int64_t width = n->h * n->d;
    return (choir__heads){choir__data(y), n->t * width, n->d, width};
}

static struct operands thirds_of(const choir_tensor *qkv, const choir__attention_shape *n)
{
    return (struct operands){
        third_of(qkv, n, 0), third_of(qkv, n, 1), third_of(qkv, n, 2), {0}, *n, qkv->dtype};
}

static void self_attention_backward(choir__record *r, choir_tensor *gy, choir__sink *sink)
{
    const choir__attention_shape *n = r->attrs;
    choir_tensor *g = sink->dest(sink, r, 0);
    if (!g)
        return;
    gy = choir__dense_rows(sink->scope, gy);
    if (g->dtype != gy->dtype) /* a parameter's gradient */
        g = choir__tensor_new(sink->scope, choir__device_of(gy), gy->dtype, g->shape);
    if (g->poisoned || gy->poisoned)
        return;
    struct operands x = thirds_of(r->saved[0], n), gx = thirds_of(g, n);
    choir__heads y = r->saved[2] ? packed_rows(r->saved[2], n) : (choir__heads){0};
    backward(&x, r->saved[1], y, packed_rows(gy, n), (choir__heads[]){gx.q, gx.k, gx.v},
        (choir__attention_bias){0});
    sink->give(sink, r, 0, g);
}

static void self_attention_again(choir__record *r)
{
    struct operands x = thirds_of(r->in[0], r->attrs);
    launch(&x, packed_rows(r->out, r->attrs), r->saved[1]);
}

static const choir__op self_attention_op = {.name = "self_attention",
    .cast = CHOIR__CAST_LOWER,
    .half_native = CHOIR__ALL_IN,
    .backward = self_attention_backward,
    .again = self_attention_again,
    .again_saved = 2,
    .reads_in = 1};

choir_tensor *choir_self_attention(choir_tensor *qkv, int heads, bool causal)
{
    choir_tensor *poisoned, *in = choir_contiguous(qkv);
    choir_scope *scope = choir__begin(&self_attention_op, &in, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = in->shape;
    if (shape.ndim != 3 || !choir__is_float(in->dtype) || heads < 1 ||
        shape.dim[2] % (3 * heads))
        return choir__shape_error(self_attention_op.name, scope, &in, 1,
            "expected (B, T, 3C) with C a multiple of the heads");
    int64_t c = shape.dim[2] / 3;
    choir__attention_shape n = {.b = shape.dim[0],
        .h = heads,
        .g = heads,
        .t = shape.dim[1],
        .s = shape.dim[1],
        .d = c / heads,
        .scale = (float)(1.0 / sqrt((double)(c / heads))),
        .causal = causal};
    choir_tensor *y = choir__tensor_new(
        scope, choir__device_of(in), in->dtype, choir_dims(shape.dim[0], shape.dim[1], c));
    if (y->poisoned)
        return y;
    struct operands x = thirds_of(in, &n);
    choir_tensor *lse = forward(scope, choir__device_of(in), &x, packed_rows(y, &n));
    if (lse->poisoned)
        return lse;
    choir__record *r = choir__record_op(&self_attention_op, y, &in, 1);
    if (r) {
        choir__record_attrs(r, &n, sizeof n);
        r->saved[0] = in;
        r->saved[1] = lse;
        r->saved[2] = saved_result(y);
    } else {
        choir__tensor_release(lse);
    }
    return choir__as_stored(y);
}
