/* Softmax, and scaled dot-product attention. Attention is one kernel forward and one backward.
 * q, k and v may be three tensors (B, H, T, D) or the thirds of one (B, T, 3C); either way a
 * head is a strided matrix. Forward keeps the result and the log sum exp of each query's scores
 * for backward, which computes the scores again. */
#include <math.h>
#include <string.h>

#include "base/floats.h"
#include "tensor/autocast.h"
#include "tensor/cache.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"
#include "tensor/segment.h"
#include "tensor/sequence.h"

/* --- softmax over rows --- */

static void softmax_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
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

static void softmax_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (x->poisoned)
        return;
    choir__k_softmax args = {.x = choir__data(x),
        .y = choir__data(r->out),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .log = *(const bool *)r->attrs,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, softmax, &args);
}

#define SOFTMAX(title)                                                                         \
    {                                                                                          \
        .name = title, .by_token = true, .cast = CHOIR__CAST_F32,                              \
        .half_native = CHOIR__ALL_IN, .backward = softmax_backward, .recompute = softmax_again \
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
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    return choir__computed(op, y, &x, 1, (choir__keeps){&logarithm, sizeof logarithm, {y}});
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

static choir__heads heads_of(const choir_tensor *x) /* (B, H, T, D) */
{
    return (choir__heads){choir__data(x), x->stride[0], x->stride[1], x->stride[2]};
}

/* Runs the kernel, for one chunk or for all of a sequence's, or has the strategy run it whose
 * ranks have the others; or for what follows a cache's texts. */
static void run(choir_scope *scope, choir_device *device, choir__k_attention *args)
{
    const choir__sequence *s = scope->sequence;
    if (scope->cache && args->n.causal) {
        choir__cache_attend(scope, device, args);
        return;
    }
    if (s && s->by) {
        s->by->ops->chunks->attention(s->by, scope, device, args);
        return;
    }
    args->n.chunks = s ? s->chunks : 0;
    choir__launch(device, args->dtype, attention, args);
}

/* lse: log sum exp (B, H, T), which 16 bits cannot hold */
static void launch(
    choir_scope *scope, choir__k_attention args, choir__heads y, const choir_tensor *lse)
{
    if (!lse->count)
        return;
    args.y = y;
    args.lse = choir__data(lse);
    run(scope, choir__device_of(lse), &args);
}

/* Makes the log sum exp of queries in y's dtype. */
static choir_tensor *new_lse(
    choir_scope *scope, const choir_tensor *y, const choir__attention_shape *n)
{
    return choir__tensor_new(
        scope, choir__device_of(y), choir__beside(y->dtype), choir_dims(n->b, n->h, n->t));
}

/* Returns the result if backward needs it. Processors do not, except for chunks, so a result
 * that will be rounded need not be kept for them. */
static choir_tensor *saved_result(choir_tensor *y)
{
    return choir__to_be_rounded(y) && !y->scope->sequence ? NULL : y;
}

static choir_tensor *as_tensor(choir_scope *scope, choir_device *device,
    const choir__attention_shape *n, choir__heads x, choir_dtype dtype) /* (B, H, T, D) */
{
    choir_tensor *t =
        choir__tensor_wrap(scope, device, dtype, choir_dims(n->b, n->h, n->t, n->d), x.p);
    int64_t stride[4] = {x.b, x.h, x.t, 1};
    memcpy(t->stride, stride, sizeof stride);
    return t;
}

/* Returns delta of kernels/attention.h, rowsum(gy y): (B, H, T). */
static choir_tensor *new_delta(
    choir_scope *scope, choir_device *device, const choir__k_attention *args)
{
    const choir__attention_shape *n = &args->n;
    choir_tensor *terms =
        choir__tensor_new(scope, device, args->dtype, choir_dims(n->b, n->h, n->t, n->d));
    choir_tensor *delta =
        choir__tensor_new(scope, device, args->dtype, choir_dims(n->b, n->h, n->t));
    if (terms->poisoned || delta->poisoned)
        return terms->poisoned ? terms : delta;
    choir__launch_binary(terms, CHOIR__MUL, as_tensor(scope, device, n, args->gy, args->dtype),
        as_tensor(scope, device, n, args->y, args->dtype));
    choir__k_sum sum = {.x = choir__data(terms),
        .y = choir__data(delta),
        .rows = delta->count,
        .cols = n->d,
        .scale = 1,
        .dtype = args->dtype};
    choir__launch(device, args->dtype, sum, &sum);
    choir__tensor_release(terms);
    return delta;
}

/* Backward of a sequence that is cut. */
static void backward_of_chunks(choir_scope *scope, choir_device *device,
    choir__k_attention *args, const choir__sequence *s)
{
    choir_tensor *delta = new_delta(scope, device, args);
    if (delta->poisoned)
        return;
    args->delta = choir__data(delta);
    if (s->by) {
        s->by->ops->chunks->attention_backward(s->by, scope, device, args);
        return;
    }
    args->n.chunks = s->chunks;
    choir__launch(device, args->dtype, attention_backward, args);
}

/* y.p may be NULL. */
static void backward(choir_scope *scope, choir__k_attention args, const choir_tensor *lse,
    choir__heads y, choir__heads gy, const choir__heads g[3])
{
    if (!lse->count)
        return;
    args.y = y;
    args.gy = gy;
    args.gq = g[0], args.gk = g[1], args.gv = g[2];
    args.lse = choir__data(lse);
    if (lse->scope->sequence)
        backward_of_chunks(scope, choir__device_of(lse), &args, lse->scope->sequence);
    else
        choir__launch(choir__device_of(lse), args.dtype, attention_backward, &args);
}

/* Returns why attention over `tokens` cannot run on a sequence that is cut, or NULL. */
static const char *wrong_chunks(
    const choir_scope *scope, choir_tensor *x, int64_t tokens, const choir_tensor *bias)
{
    const choir__sequence *s = scope->sequence;
    if (!s)
        return NULL;
    if (!choir__device_of(x)->chunks)
        return "expected a sequence without chunks, which this kind of device has no kernels for";
    if (tokens != choir__sequence_tokens(s))
        return "expected all tokens of the sequence, which is cut into chunks";
    if (bias && bias->requires_grad && scope->grad)
        return "expected a bias without a gradient, as the sequence is cut into chunks";
    return NULL;
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

static choir__k_attention arguments(
    choir_tensor *const x[OPERANDS], const choir__attention_shape *n)
{
    choir__k_attention args = {.q = heads_of(x[Q]),
        .k = heads_of(x[K]),
        .v = heads_of(x[V]),
        .n = *n,
        .dtype = x[Q]->dtype};
    if (x[BIAS])
        args.bias = bias_of(x[BIAS]);
    return args;
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

static void attention_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir__k_attention x = arguments(r->saved, r->attrs);
    choir_tensor *g[OPERANDS] = {0};
    choir__heads gx[3] = {{0}};
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
        x.gbias = bias_of(g[BIAS]);
    }
    for (int i = 0; i < BIAS && !r->out->count; i++)
        if (g[i]) /* no kernel runs: there are keys but no queries */
            choir__launch_fill(g[i], 0);
    choir_tensor *y = r->saved[RESULT];
    backward(
        sink->scope, x, r->saved[LSE], y ? heads_of(y) : (choir__heads){0}, heads_of(gy), gx);
    for (int i = 0; i < r->count; i++)
        if (g[i])
            sink->give(sink, r, i, g[i]);
}

static void attention_again(choir__tape_entry *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->saved[i])
            choir__copy_again(r, i);
    launch(r->scope, arguments(r->saved, r->attrs), heads_of(r->out), r->saved[LSE]);
}

#define ATTENTION(whole)                                                                       \
    {                                                                                          \
        .name = "attention", .by_token = true, .cast = CHOIR__CAST_LOWER,                      \
        .half_native = CHOIR__ALL_IN, .half_whole = whole, .backward = attention_backward,     \
        .recompute = attention_again, .recompute_saved = 31, .reads_in = 15                    \
    }
/* A bias's gradient is a sum over samples, which processors compute in f32. */
static const choir__op attention_op = ATTENTION(true), biased_attention_op = ATTENTION(false);

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
    if (!(opts.softcap >= 0) || isinf(opts.softcap))
        return "expected a softcap of 0 (none) or more";
    if (!k.dim[2])
        return "expected 1 key or more";
    return NULL;
}

static const char *wrong_bias(const choir_scope *scope, choir_tensor *const *in)
{
    if (!in[BIAS])
        return NULL;
    int64_t keys = scope->sequence ? scope->sequence->length : in[K]->shape.dim[2];
    choir_shape q = in[Q]->shape, bias = in[BIAS]->shape;
    if (bias.ndim != 4 || !bias.dim[0] || q.dim[0] % bias.dim[0] ||
        (bias.dim[1] != 1 && bias.dim[1] != q.dim[1]) ||
        (bias.dim[2] != 1 && bias.dim[2] != q.dim[2]) || bias.dim[3] != keys)
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
    CHOIR__DEFAULT_FLOATS;
    choir_tensor *poisoned;
    choir_tensor *in[OPERANDS] = {q, k, v, opts.bias};
    const int count = opts.bias ? OPERANDS : BIAS;
    const choir__op *op = opts.bias ? &biased_attention_op : &attention_op;
    choir_scope *scope = choir__begin(op, in, count, &poisoned);
    if (!scope)
        return poisoned;
    const char *wrong = wrong_operands(in, opts);
    if (!wrong)
        wrong = wrong_bias(scope, in);
    if (!wrong)
        wrong = wrong_chunks(scope, in[Q], in[Q]->shape.dim[2], in[BIAS]);
    if (wrong)
        return choir__shape_error(op->name, scope, in, count, wrong);
    const int64_t *dq = in[Q]->shape.dim, *dk = in[K]->shape.dim;
    choir__attention_shape n = {.b = dq[0],
        .h = dq[1],
        .g = dk[1],
        .t = dq[2],
        .s = dk[2],
        .d = dq[3],
        .window = opts.window,
        .scale = opts.scale != 0 ? opts.scale : (float)(1.0 / sqrt((double)dq[3])),
        .softcap = opts.softcap,
        .causal = opts.causal};
    choir_tensor *y = by_position(scope, choir__device_of(in[Q]), in[Q]->dtype, &n);
    choir__keeps keeps = {
        &n, sizeof n, {[LSE] = new_lse(scope, y, &n), [RESULT] = saved_result(y)}};
    for (int i = 0; i < count && !y->poisoned; i++)
        keeps.saved[i] = in[i]->stride[3] == 1 ? in[i] : choir__dense_rows(scope, in[i]);
    return choir__computed(op, y, in, count, keeps);
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

static choir__k_attention thirds_of(const choir_tensor *qkv, const choir__attention_shape *n)
{
    return (choir__k_attention){.q = third_of(qkv, n, 0),
        .k = third_of(qkv, n, 1),
        .v = third_of(qkv, n, 2),
        .n = *n,
        .dtype = qkv->dtype};
}

static void self_attention_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
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
    choir__k_attention gx = thirds_of(g, n);
    choir__heads y = r->saved[2] ? packed_rows(r->saved[2], n) : (choir__heads){0};
    backward(sink->scope, thirds_of(r->saved[0], n), r->saved[1], y, packed_rows(gy, n),
        (choir__heads[]){gx.q, gx.k, gx.v});
    sink->give(sink, r, 0, g);
}

static void self_attention_again(choir__tape_entry *r)
{
    launch(r->scope, thirds_of(r->in[0], r->attrs), packed_rows(r->out, r->attrs), r->saved[1]);
}

static const choir__op self_attention_op = {.name = "self_attention",
    .by_token = true,
    .cast = CHOIR__CAST_LOWER,
    .half_native = CHOIR__ALL_IN,
    .half_whole = true,
    .backward = self_attention_backward,
    .recompute = self_attention_again,
    .recompute_saved = 2,
    .reads_in = 1};

choir_tensor *choir_self_attention(choir_tensor *qkv, int heads, bool causal)
{
    CHOIR__DEFAULT_FLOATS;
    choir_tensor *poisoned, *in = choir_contiguous(qkv);
    choir_scope *scope = choir__begin(&self_attention_op, &in, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = in->shape;
    if (shape.ndim != 3 || !choir__is_float(in->dtype) || heads < 1 ||
        shape.dim[2] % (3 * heads))
        return choir__shape_error(self_attention_op.name, scope, &in, 1,
            "expected a floating (B, T, 3C) with C a multiple of the heads");
    const char *wrong = wrong_chunks(scope, in, shape.dim[1], NULL);
    if (wrong)
        return choir__shape_error(self_attention_op.name, scope, &in, 1, wrong);
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
    return choir__computed(&self_attention_op, y, &in, 1,
        (choir__keeps){&n, sizeof n, {in, new_lse(scope, y, &n), saved_result(y)}});
}
