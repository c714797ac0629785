/* The transformer block of GPT-2 (Radford et al., 2019), with its published names, and
 * attention by heads for blocks with separate q, k and v. GPT-2's linear layers are published
 * as "Conv1D" with a weight of (in, out). They have the same form here, so that files can be
 * exchanged without conversion. */
#include <stdio.h>

#include "nn/linear.h"
#include "nn/module.h"
#include "tensor/handle.h"

/* Deviation of initial weights, except for those that write to the residual stream. */
#define DEVIATION 0.02

/* --- its two halves --- */

/* (B, T, C) -> (B, H, T, D), a view. */
static choir_tensor *by_head(choir_tensor *x, int64_t heads)
{
    int64_t b = choir_tensor_size(x, 0), t = choir_tensor_size(x, 1);
    int64_t d = choir_tensor_size(x, 2) / heads;
    return choir_transpose(choir_reshape(x, choir_dims(b, t, heads, d)), 1, 2);
}

choir_tensor *choir__attention_of_heads(
    choir_tensor *q, choir_tensor *k, choir_tensor *v, int64_t heads, choir_attention_opts opts)
{
    choir_tensor *y =
        choir_attention_with(by_head(q, heads), by_head(k, heads), by_head(v, heads), opts);
    return choir_reshape(choir_transpose(y, 1, 2), choir_tensor_shape(q));
}

typedef struct attention {
    choir_module base;
    choir_module *c_attn, *c_proj, *dropout;
    int64_t head_dim;
    bool causal;
} attention;

/* qkv (B, T, 3C) with a bias of the scores, (B, 1, T, T) */
static choir_tensor *biased(
    const attention *a, choir_tensor *qkv, int heads, choir_tensor *bias)
{
    choir_attention_opts opts = choir_attention_defaults();
    int64_t c = heads * a->head_dim;
    opts.causal = a->causal;
    opts.bias = bias;
    return choir__attention_of_heads(choir_narrow(qkv, 2, 0, c), choir_narrow(qkv, 2, c, c),
        choir_narrow(qkv, 2, 2 * c, c), heads, opts);
}

/* in: x (B, T, C), and perhaps a bias of the scores */
static choir_tensor *attention_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attention *a = (attention *)self;
    choir_tensor *qkv = choir_forward(a->c_attn, in[0]); /* (B, T, 3C), C of the heads here */
    int heads = (int)(choir__cols(qkv) / (3 * a->head_dim));
    choir_tensor *y = count > 1 ? biased(a, qkv, heads, in[1])
                                : choir_self_attention(qkv, heads, a->causal); /* (B, T, C) */
    return choir_forward(a->dropout, choir_forward(a->c_proj, y));
}

static const choir_module_class attention_class = {
    "attention", sizeof(attention), attention_forward, 2};

static choir_module *new_attention(choir_scope *run, const choir__block_opts *o)
{
    attention *a = choir_module_new(run, &attention_class);
    a->head_dim = o->width / o->heads;
    a->causal = o->causal;
    choir_module_child(&a->base, "c_attn", &a->c_attn,
        choir__linear_in_out_new(run, o->width, 3 * o->width, DEVIATION));
    choir_module_child(&a->base, "c_proj", &a->c_proj,
        choir__linear_in_out_new(run, o->width, o->width, o->residual_deviation));
    choir_module_child(&a->base, "dropout", &a->dropout, choir_nn_dropout(run, o->dropout));
    choir__module_heads(&a->base,
        (choir__heads_of){
            .qkv = "c_attn", .out = "c_proj", .heads = o->heads, .kv_heads = o->heads});
    return &a->base;
}

typedef struct mlp {
    choir_module base;
    choir_module *c_fc, *c_proj, *dropout;
} mlp;

/* Returns the layer of GELU(x), as one op where that is better. Hooks on the layer, and an
 * adapter, see GELU's result, and a layer that is computed again by itself must be a segment of
 * its own. */
static choir_tensor *layer_of_gelu(choir_module *layer, choir_tensor *x)
{
    choir__run *run = choir__run_of(layer->run);
    choir_tensor *weight, *bias, *h, *y;
    bool in_out, apart = layer->inside->hooks || layer->inside->recompute;
    const choir__linear *linear = choir__linear_of_module(layer, &in_out);
    apart |= linear && linear->adapter.a;
    if (!apart && choir__joins_gelu(x) && choir__linear_layer(layer, &weight, &bias, &in_out)) {
        choir_module *caller = choir__module_enter(run, layer);
        y = choir__linear_of_gelu(x, weight, bias, in_out);
        choir__module_enter(run, caller);
        return y;
    }
    h = choir_gelu_tanh(x);
    y = choir_forward(layer, h);
    choir__done_with(h);
    return y;
}

static choir_tensor *mlp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    mlp *m = (mlp *)self;
    (void)count;
    choir_tensor *h = choir_forward(m->c_fc, in[0]); /* (B, T, hidden) */
    return choir_forward(m->dropout, layer_of_gelu(m->c_proj, h));
}

static const choir_module_class mlp_class = {"mlp", sizeof(mlp), mlp_forward, 1};

static choir_module *new_mlp(choir_scope *run, const choir__block_opts *o)
{
    mlp *m = choir_module_new(run, &mlp_class);
    choir_module_child(&m->base, "c_fc", &m->c_fc,
        choir__linear_in_out_new(run, o->width, o->hidden, DEVIATION));
    choir_module_child(&m->base, "c_proj", &m->c_proj,
        choir__linear_in_out_new(run, o->hidden, o->width, o->residual_deviation));
    choir_module_child(&m->base, "dropout", &m->dropout, choir_nn_dropout(run, o->dropout));
    return &m->base;
}

typedef struct block {
    choir_module base;
    choir_module *ln_1, *attn, *ln_2, *mlp;
} block;

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self;
    choir_tensor *x = in[0],
                 *h = choir__norm_for(b->ln_1, x, CHOIR__FOR_A_PRODUCT); /* (B, T, C) */
    choir_tensor *a = count > 1 ? choir_forward(b->attn, h, in[1]) : choir_forward(b->attn, h);
    choir__done_with(h);
    h = choir__norm_of_sum(b->ln_2, x, a, CHOIR__FOR_A_PRODUCT, &x);
    choir__done_with(a);
    a = choir_forward(b->mlp, h);
    choir__done_with(h);
    x = choir_add(x, a);
    choir__done_with(a);
    return x;
}

static const choir_module_class block_class = {"block", sizeof(block), block_forward, 2};

choir_module *choir__nn_block(choir_scope *run, choir__block_opts o)
{
    block *b = choir_module_new(run, &block_class);
    if (o.heads < 1 || o.width < 1 || o.hidden < 1 || o.width % o.heads) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "transformer: a width of %lld does not divide into %d heads", (long long)o.width,
            o.heads);
        o.width = o.hidden = o.heads = 1;
    }
    choir_module_child(
        &b->base, "ln_1", &b->ln_1, choir_nn_layer_norm_with(run, o.width, o.eps));
    choir_module_child(&b->base, "attn", &b->attn, new_attention(run, &o));
    choir_module_child(
        &b->base, "ln_2", &b->ln_2, choir_nn_layer_norm_with(run, o.width, o.eps));
    choir_module_child(&b->base, "mlp", &b->mlp, new_mlp(run, &o));
    return &b->base;
}

choir_module *choir_nn_transformer_block(choir_scope *run, int64_t width, int heads,
    bool causal, float dropout, double residual_deviation)
{
    run = choir__open_scope(run, __func__);
    return choir__nn_block(run, (choir__block_opts){.width = width,
                                    .hidden = 4 * width,
                                    .heads = heads,
                                    .causal = causal,
                                    .dropout = dropout,
                                    .eps = 1e-5f,
                                    .residual_deviation = residual_deviation});
}
