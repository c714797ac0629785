/* The size of a kernel call, counted from its arguments.
 *
 * FLOPs are the textbook's: 2 per multiplication and addition of the result.
 * Additional work of a kernel (attention's backward computes the scores again) does not count.
 * Bytes are its operands', each once: what a kernel would move if its caches held
 * everything that it reads twice. */
#include "device/work.h"

#include <string.h>

typedef void size_fn(const void *args, choir__kernel_work *w);

/* --- what the sizes of operands come to --- */

static double size_of(choir_dtype dtype)
{
    return (double)choir_dtype_size(dtype);
}

static void set_dims(choir__kernel_work *w, int64_t a, int64_t b, int64_t c, int64_t d)
{
    w->dims[0] = a, w->dims[1] = b, w->dims[2] = c, w->dims[3] = d;
}

static int64_t product(const int64_t *shape, int ndim)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

/* A kernel of rows of cols elements, with that many operands of this size. */
static void rows(
    choir__kernel_work *w, choir_dtype dtype, int64_t rows_, int64_t cols, double operands)
{
    set_dims(w, rows_, cols, 0, 0);
    w->dtype = dtype;
    w->bytes = operands * (double)rows_ * (double)cols * size_of(dtype);
}

static void elements(choir__kernel_work *w, choir_dtype dtype, int64_t n, double operands)
{
    rows(w, dtype, n, 1, operands);
    w->dims[1] = 0;
}

/* --- products --- */

/* Returns the terms of each element's sum: K, or the terms of the node that is computed. */
static int64_t terms_of(const choir__k_matmul *k)
{
    const choir__node node = choir__cut_node(k->cut, k->node);
    int64_t from, end, unused;
    choir__cut_leaf(k->cut, k->k, node.start, &from, &unused);
    choir__cut_leaf(k->cut, k->k, node.start + node.leaves - 1, &unused, &end);
    return (end - from) * choir__cut_outer(k->cut);
}

static void matmul(const void *args, choir__kernel_work *w)
{
    const choir__k_matmul *k = args;
    double batch = (double)k->batch0 * (double)k->batch1, m = (double)k->m, n = (double)k->n;
    int64_t terms = terms_of(k);
    double inputs = m * (double)terms * (k->a_batch0 || k->a_batch1 ? batch : 1) +
                    n * (double)terms * (k->b_batch0 || k->b_batch1 ? batch : 1);
    double out = batch * m * n * (k->accumulate ? 2 : 1);
    set_dims(w, k->batch0 * k->batch1, k->m, k->n, terms);
    w->dtype = k->dtype;
    w->flops = 2 * batch * m * n * (double)terms;
    w->bytes = inputs * size_of(k->dtype) + out * size_of(k->wide ? CHOIR_F32 : k->dtype);
}

/* The input, the weights and the result of a convolution: each way reads two of them and writes
 * the third one. */
static void conv(const void *args, choir__kernel_work *w)
{
    const choir__k_conv *k = args;
    const choir__conv_shape *s = &k->s;
    int64_t terms = s->kh * s->kw * (s->c / s->groups), out = s->n * s->oh * s->ow;
    set_dims(w, out, s->o, terms, s->groups);
    w->dtype = k->dtype;
    w->flops = 2.0 * (double)out * (double)s->o * (double)terms;
    w->bytes =
        size_of(k->dtype) * ((double)(s->n * s->h * s->w) * (double)s->c +
                                (double)out * (double)s->o + (double)s->o * (double)terms);
}

/* Returns the number of keys that the query at position t sees. */
static double keys_of(const choir__attention_shape *n, int64_t t)
{
    const int64_t from = n->window ? choir__max(0, t - n->window + 1) : 0;
    return (double)choir__max(0, (n->causal ? choir__min(n->s, t + 1) : n->s) - from);
}

/* Returns the number of pairs of a query and a key that it sees. Between the positions at which
 * a limit begins or ends to hold, the number of keys grows by one, falls by one, or stays. */
static double pairs(const choir__attention_shape *n)
{
    const int64_t bends[] = {n->s, n->window, n->s + n->window}, end = n->ahead + n->t;
    double sum = 0;
    for (int64_t t = n->ahead, to; t < end; t = to) {
        to = end;
        for (size_t b = 0; b < CHOIR_COUNT(bends); b++)
            for (int64_t at = bends[b] - 1; at <= bends[b]; at++)
                to = at > t && at < to ? at : to;
        sum += (keys_of(n, t) + keys_of(n, to - 1)) / 2 * (double)(to - t);
    }
    return sum * (double)(n->b * n->h);
}

static void attention(const void *args, choir__kernel_work *w)
{
    const choir__k_attention *k = args;
    const choir__attention_shape *n = &k->n;
    double queries = (double)(n->b * n->h * n->t), keys = (double)(n->b * n->g * n->s);
    set_dims(w, n->b * n->h, n->t, n->s, n->d);
    w->dtype = k->dtype;
    w->flops = 4 * pairs(n) * (double)n->d;
    w->bytes = size_of(k->dtype) * (double)n->d * 2 * (queries + keys);
}

/* Reads q, k, v, y and gy, and writes the gradients of the first three. */
static void attention_backward(const void *args, choir__kernel_work *w)
{
    attention(args, w);
    w->flops *= 2;
    w->bytes *= 2;
}

/* `steps` products of (B, H) by (H, G H): the forward, or the backward's gradient of the
 * state. */
static void recurrent(const void *args, choir__kernel_work *w)
{
    const choir__k_recurrent *k = args;
    int64_t gates = choir__recurrent_cell_gates(k->cell);
    double states = (double)k->steps * (double)k->batch * (double)k->width;
    set_dims(w, k->steps, k->batch, k->width, gates);
    w->dtype = k->dtype;
    w->flops = 2 * states * (double)gates * (double)k->width;
    w->bytes = size_of(k->dtype) *
               (states * (double)(2 * gates + 2) +
                   (double)k->steps * (double)(gates * k->width) * (double)k->width);
}

/* --- rows --- */

#define SIZE(name)                                                                             \
    static void name##_size(const void *args, choir__kernel_work *w)                           \
    {                                                                                          \
        const choir__k_##name *k = args;
#define END }

SIZE(fill)
elements(w, k->dtype, k->n, 1);
END

    SIZE(copy) elements(w, k->x_dtype, product(k->shape, k->ndim), 1);
w->bytes += (double)w->dims[0] * size_of(k->y_dtype);
END

SIZE(round)
int64_t n = 0;
for (int i = 0; i < k->count; i++)
    n += k->run[i].n;
elements(w, CHOIR_F32, n, 1.5);
w->dtype = k->dtype;
END

    SIZE(unary) elements(w, k->dtype, k->n, 2);
END

    SIZE(unary_backward) elements(w, k->dtype, k->n, 3);
END

    SIZE(binary) elements(w, k->dtype, product(k->shape, k->ndim), 3);
END

    SIZE(add_scaled) elements(w, k->dtype, k->n, k->b ? 3 : 2);
END

    SIZE(sum) rows(w, k->dtype, k->rows, k->cols, 1);
END

    SIZE(max_rows) rows(w, k->dtype, k->rows, k->cols, 1);
END

    SIZE(softmax) rows(w, k->dtype, k->rows, k->cols, 2);
END

    SIZE(softmax_backward) rows(w, k->dtype, k->rows, k->cols, 3);
END

    SIZE(layer_norm)
        rows(w, k->dtype, k->rows, k->cols, 2 + (k->add ? 2 : 0) + (k->y_half ? 0.5 : 0));
END

    SIZE(layer_norm_backward)
        rows(w, k->dtype, k->rows, k->cols, 3 + (k->gx_add ? 1 : 0) + (k->gx_half ? 0.5 : 0));
END

    SIZE(layer_norm_weights) rows(w, k->dtype, k->rows, k->cols, 2);
END

    SIZE(swiglu) rows(w, k->dtype, k->rows, k->cols, 3);
END

    SIZE(swiglu_backward)
        rows(w, k->dtype, k->rows, k->cols, 3 + (k->ga != NULL) + (k->gb != NULL));
END

    SIZE(rotary) rows(w, k->dtype, k->b * k->t * k->h, k->d, 2);
END

    SIZE(batch_norm) rows(w, k->dtype, k->rows, k->cols, 2 + (k->residual ? 1 : 0));
END

    SIZE(batch_norm_backward)
        rows(w, k->dtype, k->rows, k->cols, 3 + (k->relu ? 1 : 0) + (k->gresidual ? 1 : 0));
END

    SIZE(group_norm) rows(w, k->dtype, k->n * k->pixels, k->cols, 2);
END

    SIZE(group_norm_backward) rows(w, k->dtype, k->n * k->pixels, k->cols, 3);
END

    SIZE(pool) const choir__conv_shape *s = &k->s;
double in = (double)(s->n * s->h * s->w) * (double)s->c;
double out = (double)(s->n * s->oh * s->ow) * (double)s->c;
rows(w, k->dtype, s->n * s->oh * s->ow, s->c, 1);
w->bytes = (in + out) * size_of(k->dtype);
END

    SIZE(embedding) rows(w, k->dtype, k->n, k->cols, 2);
END

    SIZE(embedding_backward) rows(w, k->dtype, k->total, k->cols, 2);
if (!k->accumulate)
    w->bytes += (double)k->rows * (double)k->cols * size_of(k->dtype);
END

    SIZE(cross_entropy) rows(w, k->dtype, k->rows, k->cols, 1);
END

    SIZE(cross_entropy_backward) rows(w, k->dtype, k->rows, k->cols, 2);
END

    SIZE(pair_loss) elements(w, k->dtype, k->n, 3);
END

    SIZE(pair_loss_backward) elements(w, k->dtype, k->n, 3 + (k->gx != NULL) + (k->gy != NULL));
END

    SIZE(nll) rows(w, k->dtype, k->rows, 1, 1);
END

    SIZE(nll_backward) rows(w, k->dtype, k->rows, k->cols, 1);
END

    SIZE(count_targets) elements(w, CHOIR_I64, k->n, 1);
END

    SIZE(loss_divisor) elements(w, CHOIR_F64, k->n, 1);
END

    SIZE(part_targets) elements(w, CHOIR_I64, k->n, 2);
END

    SIZE(part_losses) rows(w, k->dtype, k->parts, k->rows, 2);
END

    SIZE(part_max) rows(w, k->dtype, k->parts, k->rows, 3);
END

    SIZE(ctc) rows(w, k->dtype, k->steps * k->batch, k->classes, 1);
w->bytes += (double)(k->steps * k->batch) * (double)(2 * k->most + 1) * size_of(k->dtype);
END

    SIZE(dropout) elements(w, k->dtype, k->n, 2);
END

    SIZE(random) elements(w, k->dtype, k->n, 1);
END

    /* --- optimizers, whose operands are in tables in device memory: the caller knows their
       sizes --- */

    SIZE(optim) set_dims(w, k->count, 0, 0, 0);
END

    SIZE(grad_norm) set_dims(w, k->count, 0, 0, 0);
END

    SIZE(unscale) set_dims(w, k->count, 0, 0, 0);
END

    SIZE(store) elements(w, CHOIR_U8, k->bytes, 1);
END

    /* --- kernels that compare, choose, look up and order --- */

    SIZE(compare) elements(w, k->dtype, product(k->shape, k->ndim), 2);
w->bytes += (double)w->dims[0];
END

    SIZE(where) elements(w, k->dtype, product(k->shape, k->ndim), 3);
w->bytes += (double)w->dims[0];
END

    SIZE(extreme) rows(w, k->dtype, k->outer * k->inner, k->n, 1);
END

    SIZE(cumsum) rows(w, k->dtype, k->outer * k->inner, k->n, 2);
END

    SIZE(gather) elements(w, k->dtype, product(k->shape, k->ndim), 2);
w->bytes += 8 * (double)w->dims[0];
END

    SIZE(sort) rows(w, k->dtype, k->outer * k->inner, k->n, 1);
w->bytes += 8 * (double)(k->outer * k->inner) * (double)k->top;
END

    SIZE(stretch) rows(w, k->dtype, k->outer * k->inner, k->to, 1);
w->bytes += (double)(k->outer * k->inner) * (double)k->from * size_of(k->dtype);
END

    SIZE(hash) rows(w, k->dtype, k->rows, k->cols, 1);
END

    SIZE(cholesky) rows(w, k->dtype, k->batch * k->n, k->n, 2);
END

    SIZE(solve_triangular) rows(w, k->dtype, k->batch * k->n, k->n + 2 * k->cols, 1);
END

    SIZE(svd) rows(w, k->dtype, k->batch *(2 * k->m + 1 + k->n), k->n, 1);
END

#undef SIZE
#undef END

#define OF(name)          [CHOIR__KERNEL_##name] = name##_size
#define LIKE(name, other) [CHOIR__KERNEL_##name] = other

    static size_fn *const sizes[CHOIR__KERNEL_COUNT] = {
        LIKE(matmul, matmul),
        LIKE(conv, conv),
        LIKE(conv_backward_input, conv),
        LIKE(conv_backward_weight, conv),
        LIKE(attention, attention),
        LIKE(attention_backward, attention_backward),
        LIKE(recurrent, recurrent),
        LIKE(recurrent_backward, recurrent),
        OF(fill),
        OF(copy),
        OF(round),
        OF(unary),
        OF(unary_backward),
        OF(binary),
        OF(add_scaled),
        OF(sum),
        OF(max_rows),
        OF(softmax),
        OF(softmax_backward),
        OF(layer_norm),
        OF(layer_norm_backward),
        OF(layer_norm_weights),
        OF(swiglu),
        OF(swiglu_backward),
        OF(rotary),
        OF(batch_norm),
        OF(batch_norm_backward),
        OF(group_norm),
        OF(group_norm_backward),
        OF(pool),
        LIKE(pool_backward, pool_size),
        LIKE(adaptive_pool, pool_size),
        LIKE(adaptive_pool_backward, pool_size),
        OF(embedding),
        OF(embedding_backward),
        OF(cross_entropy),
        OF(cross_entropy_backward),
        OF(pair_loss),
        OF(pair_loss_backward),
        OF(nll),
        OF(nll_backward),
        OF(count_targets),
        OF(loss_divisor),
        OF(part_targets),
        OF(part_losses),
        OF(part_max),
        OF(ctc),
        LIKE(ctc_backward, ctc_size),
        OF(dropout),
        OF(random),
        LIKE(sgd, optim_size),
        LIKE(adam, optim_size),
        LIKE(lamb, optim_size),
        LIKE(lion, optim_size),
        LIKE(rmsprop, optim_size),
        LIKE(average, optim_size),
        OF(grad_norm),
        OF(unscale),
        OF(store),
        OF(compare),
        OF(where),
        OF(extreme),
        OF(cumsum),
        OF(gather),
        LIKE(scatter_add, gather_size),
        OF(sort),
        OF(stretch),
        OF(hash),
        OF(cholesky),
        OF(solve_triangular),
        OF(svd),
};

void choir__kernel_size(choir__kernel_id id, const void *args, choir__kernel_work *work)
{
    if (sizes[id]) /* the others look at a few numbers */
        sizes[id](args, work);
}
