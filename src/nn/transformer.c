/* The transformer block of GPT-2 (Radford et al., 2019), under its published names. */
#include <stdio.h>

#include "nn/module.h"

typedef struct attention {
    choir_module base;
    choir_module *c_attn, *c_proj, *dropout;
    int heads;
    bool causal;
} attention;

static choir_tensor *attention_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attention *a = (attention *)self;
    (void)count;
    choir_tensor *qkv = choir_forward(a->c_attn, in[0]);              /* (B, T, 3C) */
    choir_tensor *y = choir_self_attention(qkv, a->heads, a->causal); /* (B, T, C) */
    return choir_forward(a->dropout, choir_forward(a->c_proj, y));
}

static const choir_module_class attention_class = {
    "attention", sizeof(attention), attention_forward};

static choir_module *new_attention(choir_scope *run, int64_t width, int heads, bool causal,
    float dropout, double residual_deviation)
{
    attention *a = choir_module_new(run, &attention_class);
    a->heads = heads;
    a->causal = causal;
    choir_init init = choir_init_normal(0, 0.02),
               last = choir_init_normal(0, residual_deviation);
    choir_module_child(&a->base, "c_attn", &a->c_attn,
        choir_nn_linear_with(run, width, 3 * width, true, init));
    choir_module_child(
        &a->base, "c_proj", &a->c_proj, choir_nn_linear_with(run, width, width, true, last));
    choir_module_child(&a->base, "dropout", &a->dropout, choir_nn_dropout(run, dropout));
    return &a->base;
}

typedef struct mlp {
    choir_module base;
    choir_module *c_fc, *c_proj, *dropout;
} mlp;

static choir_tensor *mlp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    mlp *m = (mlp *)self;
    (void)count;
    choir_tensor *h = choir_gelu_tanh(choir_forward(m->c_fc, in[0])); /* (B, T, 4C) */
    choir_tensor *y = choir_forward(m->c_proj, h);
    choir__done_with(h);
    return choir_forward(m->dropout, y);
}

static const choir_module_class mlp_class = {"mlp", sizeof(mlp), mlp_forward};

static choir_module *new_mlp(
    choir_scope *run, int64_t width, float dropout, double residual_deviation)
{
    mlp *m = choir_module_new(run, &mlp_class);
    choir_init init = choir_init_normal(0, 0.02),
               last = choir_init_normal(0, residual_deviation);
    choir_module_child(
        &m->base, "c_fc", &m->c_fc, choir_nn_linear_with(run, width, 4 * width, true, init));
    choir_module_child(&m->base, "c_proj", &m->c_proj,
        choir_nn_linear_with(run, 4 * width, width, true, last));
    choir_module_child(&m->base, "dropout", &m->dropout, choir_nn_dropout(run, dropout));
    return &m->base;
}

typedef struct block {
    choir_module base;
    choir_module *ln_1, *attn, *ln_2, *mlp;
} block;

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self;
    (void)count;
    choir_tensor *x = in[0], *h = choir_forward(b->ln_1, x); /* (B, T, C) */
    choir_tensor *a = choir_forward(b->attn, h);
    choir__done_with(h);
    h = choir__norm_of_sum(b->ln_2, x, a, &x);
    choir__done_with(a);
    a = choir_forward(b->mlp, h);
    choir__done_with(h);
    x = choir_add(x, a);
    choir__done_with(a);
    return x;
}

static const choir_module_class block_class = {"block", sizeof(block), block_forward};

choir_module *choir_nn_transformer_block(choir_scope *run, int64_t width, int heads,
    bool causal, float dropout, double residual_deviation)
{
    block *b = choir_module_new(run, &block_class);
    if (heads < 1 || width < 1 || width % heads) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "transformer: a width of %lld does not divide into %d heads", (long long)width,
            heads);
        width = heads = 1;
    }
    choir_module_child(&b->base, "ln_1", &b->ln_1, choir_nn_layer_norm(run, width));
    choir_module_child(&b->base, "attn", &b->attn,
        new_attention(run, width, heads, causal, dropout, residual_deviation));
    choir_module_child(&b->base, "ln_2", &b->ln_2, choir_nn_layer_norm(run, width));
    choir_module_child(
        &b->base, "mlp", &b->mlp, new_mlp(run, width, dropout, residual_deviation));
    return &b->base;
}
