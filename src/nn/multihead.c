/* torch.nn.MultiheadAttention: one weight for queries, keys and values, and each product reads
 * its own rows of it. Where x attends to itself, one product makes all three.
 *
 *   q, k, v = x W' + b  --by head-->  softmax(q k^T / sqrt D + mask) v  --out_proj-->  y */
#include <choir/attention.h>
#include <choir/select.h>
#include <math.h>
#include <stdlib.h>

#include "base/floats.h"
#include "nn/module.h"
#include "tensor/handle.h"

typedef struct multihead {
    choir_module base;
    choir_tensor *weight, *bias; /* (3 C, C), (3 C) or NULL */
    choir_module *out_proj;
    int64_t width;
    int heads;
    bool causal;
    float dropout;
} multihead;

choir_multihead_opts choir_multihead_defaults(void)
{
    return (choir_multihead_opts){.dropout = 0};
}

/* Returns rows [first, first + count) C of a parameter, in x's scope. */
static choir_tensor *rows_of(
    const multihead *m, choir_tensor *param, choir_tensor *x, int first, int count)
{
    choir_tensor *lifted = choir_in(choir_tensor_scope(x), param);
    return choir_narrow(lifted, 0, first * m->width, count * m->width);
}

/* Returns parts [first, first + count) of queries, keys and values: (B, T, count C). */
static choir_tensor *projected(const multihead *m, choir_tensor *x, int first, int count)
{
    if (count == 3)
        return choir_linear(x, m->weight, m->bias);
    choir_tensor *bias = m->bias ? rows_of(m, m->bias, x, first, count) : NULL;
    return choir_linear(x, rows_of(m, m->weight, x, first, count), bias);
}

static choir_tensor *part(const multihead *m, choir_tensor *x, int which)
{
    return choir_narrow(x, 2, which * m->width, m->width);
}

/* (B, T, C) -> (B, H, T, D), a view */
static choir_tensor *by_head(const multihead *m, choir_tensor *x)
{
    int64_t b = choir_tensor_size(x, 0), t = choir_tensor_size(x, 1);
    return choir_transpose(
        choir_reshape(x, choir_dims(b, t, m->heads, m->width / m->heads)), 1, 2);
}

/* Returns the softmax of scores; a query whose keys a mask hides, all of them, has zeros. */
static choir_tensor *shares(choir_tensor *scores, choir_tensor *mask)
{
    if (!mask)
        return choir_softmax(scores);
    choir_tensor *top = choir_max_dim(scores, -1, true, NULL);
    choir_tensor *none = choir_compare(top, CHOIR_EQ, -INFINITY);
    return choir_masked_fill(choir_softmax(choir_masked_fill(scores, none, 0)), none, 0);
}

/* Stores the scores as a whole, and drops some of them after the softmax. */
static choir_tensor *with_dropout(
    const multihead *m, choir_tensor *q, choir_tensor *k, choir_tensor *v, choir_tensor *mask)
{
    CHOIR__DEFAULT_FLOATS;
    choir_tensor *turned = choir_transpose(by_head(m, k), 2, 3);
    double scale = 1 / sqrt((double)(m->width / m->heads));
    choir_tensor *scores = choir_scale(choir_matmul(by_head(m, q), turned), scale);
    if (mask)
        scores = choir_add(scores, mask);
    if (m->causal) {
        choir_shape each =
            choir_dims(choir_tensor_size(scores, 2), choir_tensor_size(scores, 3));
        choir_tensor *ones = choir_full(choir_tensor_scope(scores), CHOIR_F32, each, 1);
        choir_tensor *later = choir_compare(choir_triu(ones, 1), CHOIR_NE, 0);
        later = choir_to(later, choir_tensor_device(scores));
        scores = choir_masked_fill(scores, later, -INFINITY);
    }
    choir_tensor *share = choir_dropout(shares(scores, mask), m->dropout, m->base.path);
    choir_tensor *y = choir_transpose(choir_matmul(share, by_head(m, v)), 1, 2);
    return choir_reshape(y, choir_tensor_shape(q));
}

static choir_tensor *attended(
    const multihead *m, choir_tensor *q, choir_tensor *k, choir_tensor *v, choir_tensor *mask)
{
    if (m->dropout > 0 && m->base.training)
        return with_dropout(m, q, k, v, mask);
    choir_attention_opts o = choir_attention_defaults();
    o.causal = m->causal;
    o.bias = mask;
    return choir__attention_of_heads(q, k, v, m->heads, o);
}

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    const multihead *m = (multihead *)self;
    choir_tensor *key = count > 1 && in[1] ? in[1] : in[0];
    choir_tensor *value = count > 2 && in[2] ? in[2] : key;
    choir_tensor *mask = count > 3 ? in[3] : NULL, *q, *k, *v;
    for (int i = 0; i < 3 && i < count; i++)
        if (in[i] && !in[i]->poisoned &&
            (in[i]->shape.ndim != 3 || in[i]->shape.dim[2] != m->width))
            return choir__poison(in[i]->scope, CHOIR_ERR_SHAPE,
                "multihead_attention: expected inputs (B, T, %lld), got %s",
                (long long)m->width, choir__shape_text(in[i]->shape));
    if (key == in[0] && value == key) {
        choir_tensor *qkv = projected(m, in[0], 0, 3);
        q = part(m, qkv, 0), k = part(m, qkv, 1), v = part(m, qkv, 2);
    } else if (value == key) {
        choir_tensor *kv = projected(m, key, 1, 2);
        q = projected(m, in[0], 0, 1), k = part(m, kv, 0), v = part(m, kv, 1);
    } else {
        q = projected(m, in[0], 0, 1);
        k = projected(m, key, 1, 1), v = projected(m, value, 2, 1);
    }
    return choir_forward(m->out_proj, attended(m, q, k, v, mask));
}

static const choir_module_class multihead_class = {
    "multihead_attention", sizeof(multihead), forward, 4};

choir_module *choir_nn_multihead_attention(
    choir_scope *run, int64_t width, int heads, choir_multihead_opts o)
{
    run = choir__open_scope(run, __func__);
    multihead *m = choir_module_new(run, &multihead_class);
    if (width < 1 || heads < 1 || width % heads) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "multihead_attention: a width of %lld does not divide into %d heads",
            (long long)width, heads);
        width = heads = 1;
    }
    if (!(o.dropout >= 0 && o.dropout < 1)) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "multihead_attention: expected a dropout in [0, 1), got %g", (double)o.dropout);
        o.dropout = 0;
    }
    m->width = width, m->heads = heads, m->causal = o.causal, m->dropout = o.dropout;
    choir_module_param(&m->base, "in_proj_weight", &m->weight, choir_dims(3 * width, width),
        choir_init_xavier_uniform(1));
    if (!o.no_bias)
        choir_module_param(
            &m->base, "in_proj_bias", &m->bias, choir_dims(3 * width), choir_init_constant(0));
    choir_module_child(&m->base, "out_proj", &m->out_proj,
        choir_nn_linear_with(run, width, width, !o.no_bias, choir__fan_in_init(width)));
    choir_module_init(m->out_proj, "*bias", choir_init_constant(0)); /* as PyTorch's */
    return &m->base;
}
