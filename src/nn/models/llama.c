/* Llama (Touvron et al., 2023) and Mistral (Jiang et al., 2023): token embeddings; pre-norm
 * blocks of grouped-query attention with rotary positions, and a SwiGLU; a final norm; a head
 * of its own or tied to the embeddings. Norms are RMS norms, layers have no biases, and
 * positions have no parameters. Parameter names follow the published weights; initial
 * values are normal with deviation 0.02. */
#include "nn/models/llama.h"

#include <stdio.h>

#include "nn/module.h"
#include "tensor/cache.h"
#include "tensor/sequence.h"

static choir_module *new_linear(choir_scope *run, int64_t in, int64_t out, bool bias)
{
    return choir_nn_linear_with(run, in, out, bias, choir_init_normal(0, 0.02));
}

/* --- attention --- */

typedef struct attention {
    choir_module base;
    choir_module *q_proj, *k_proj, *v_proj, *o_proj;
    int64_t head_dim, window;
} attention;

/* (B, T, N D) -> (B, T, N, D) without a copy; N is the number of heads on this rank. */
static choir_tensor *by_heads(choir_tensor *x, int64_t head_dim)
{
    choir_shape s = choir_tensor_shape(x);
    return choir_reshape(
        x, choir_dims(s.dim[0], s.dim[1], choir__cols(x) / head_dim, head_dim));
}

/* (B, T, N D) -> (B, N, T, D), each head rotated by its position. */
static choir_tensor *turned_heads(choir_tensor *x, const attention *a, choir_tensor *table)
{
    choir_tensor *straight = by_heads(x, a->head_dim);
    choir_tensor *turned = choir_rotary(straight, table, 0);
    choir__done_with(straight);
    choir__done_with(x);
    return choir_transpose(turned, 1, 2);
}

/* in: x (B, T, C), the table of rotary positions, and perhaps a bias of the scores */
static choir_tensor *attention_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attention *a = (attention *)self;
    choir_tensor *q = turned_heads(choir_forward(a->q_proj, in[0]), a, in[1]);
    choir_tensor *k = turned_heads(choir_forward(a->k_proj, in[0]), a, in[1]);
    choir_tensor *v = by_heads(choir_forward(a->v_proj, in[0]), a->head_dim);
    choir_attention_opts opts = choir_attention_defaults();
    opts.causal = true;
    opts.window = a->window;
    opts.bias = count > 2 ? in[2] : NULL;
    choir_tensor *y = choir_attention_with(q, k, choir_transpose(v, 1, 2), opts);
    y = choir_flatten(choir_transpose(y, 1, 2), 2); /* (B, T, H D) */
    return choir_forward(a->o_proj, y);
}

static const choir_module_class attention_class = {
    "llama_attention", sizeof(attention), attention_forward, 3};

static choir_module *new_attention(choir_scope *run, const choir__llama_sizes *s)
{
    attention *a = choir_module_new(run, &attention_class);
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    a->head_dim = s->head_dim;
    a->window = s->window;
    choir_module_child(
        &a->base, "q_proj", &a->q_proj, new_linear(run, s->width, q, s->attention_bias));
    choir_module_child(
        &a->base, "k_proj", &a->k_proj, new_linear(run, s->width, kv, s->attention_bias));
    choir_module_child(
        &a->base, "v_proj", &a->v_proj, new_linear(run, s->width, kv, s->attention_bias));
    choir_module_child(
        &a->base, "o_proj", &a->o_proj, new_linear(run, q, s->width, s->attention_bias));
    choir__module_heads(&a->base, (choir__heads_of){.q = "q_proj",
                                      .k = "k_proj",
                                      .v = "v_proj",
                                      .out = "o_proj",
                                      .heads = s->heads,
                                      .kv_heads = s->kv_heads});
    return &a->base;
}

/* --- the gated layers --- */

typedef struct mlp {
    choir_module base;
    choir_module *gate_proj, *up_proj, *down_proj;
} mlp;

static choir_tensor *mlp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    mlp *m = (mlp *)self;
    (void)count;
    choir_tensor *gate = choir_forward(m->gate_proj, in[0]); /* (B, T, hidden) */
    choir_tensor *h = choir_swiglu(gate, choir_forward(m->up_proj, in[0]));
    choir_tensor *y = choir_forward(m->down_proj, h);
    choir__done_with(h);
    return y;
}

static const choir_module_class mlp_class = {"llama_mlp", sizeof(mlp), mlp_forward, 1};

static choir_module *new_mlp(choir_scope *run, const choir__llama_sizes *s)
{
    mlp *m = choir_module_new(run, &mlp_class);
    choir_module_child(&m->base, "gate_proj", &m->gate_proj,
        new_linear(run, s->width, s->hidden, s->mlp_bias));
    choir_module_child(
        &m->base, "up_proj", &m->up_proj, new_linear(run, s->width, s->hidden, s->mlp_bias));
    choir_module_child(&m->base, "down_proj", &m->down_proj,
        new_linear(run, s->hidden, s->width, s->mlp_bias));
    return &m->base;
}

/* --- the block --- */

typedef struct block {
    choir_module base;
    choir_module *self_attn, *mlp, *input_layernorm, *post_attention_layernorm;
} block;

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self;
    choir_tensor *x = in[0]; /* (B, T, C) */
    choir_tensor *h = choir__norm_for(b->input_layernorm, x, CHOIR__FOR_PRODUCTS);
    choir_tensor *a = count > 2 ? choir_forward(b->self_attn, h, in[1], in[2])
                                : choir_forward(b->self_attn, h, in[1]);
    choir__done_with(h);
    h = choir__norm_of_sum(b->post_attention_layernorm, x, a, CHOIR__FOR_PRODUCTS, &x);
    choir__done_with(a);
    a = choir_forward(b->mlp, h);
    choir__done_with(h);
    x = choir_add(x, a);
    choir__done_with(a);
    return x;
}

static const choir_module_class block_class = {"llama_block", sizeof(block), block_forward, 3};

static choir_module *new_block(choir_scope *run, const choir__llama_sizes *s)
{
    block *b = choir_module_new(run, &block_class);
    choir_module_child(&b->base, "self_attn", &b->self_attn, new_attention(run, s));
    choir_module_child(&b->base, "mlp", &b->mlp, new_mlp(run, s));
    choir_module_child(&b->base, "input_layernorm", &b->input_layernorm,
        choir_nn_rms_norm(run, s->width, (float)s->eps));
    choir_module_child(&b->base, "post_attention_layernorm", &b->post_attention_layernorm,
        choir_nn_rms_norm(run, s->width, (float)s->eps));
    return &b->base;
}

/* --- the model --- */

typedef struct llama {
    choir_module base;
    choir_module *embed_tokens, *norm, *lm_head;
    choir_tensor *head;  /* tied: the embeddings (V, C), and no lm_head */
    choir_tensor *table; /* table of rotary positions, up to the longest length so far */
    choir_module *layers[CHOIR__LLAMA_LAYERS];
    choir__llama_sizes sizes;
} llama;

/* Returns the table for t positions. It grows in powers of two up to the context, so that a
 * long context costs nothing until it is used. An outgrown table stays with the run, because
 * backward may still read it. */
static choir_tensor *grown_table(llama *g, int64_t t)
{
    int64_t have = g->table ? choir_tensor_size(g->table, 0) : 64;
    if (g->table && have >= t)
        return g->table;
    while (have < t)
        have *= 2;
    g->table = choir_rotary_table(g->base.run, CHOIR_F32,
        choir__min(have, choir__max(g->sizes.context, t)), g->sizes.head_dim, g->sizes.rotary);
    return g->table;
}

/* Returns the table on the device of the ids, which for a replica of the model is not the
 * table's own, with the rows of their tokens where sequences are cut, follow a cache, or have
 * positions. A copy belongs to the step.
 */
static choir_tensor *table_for(llama *g, const choir_tensor *ids, choir_tensor *positions)
{
    choir_scope *scope = choir_tensor_scope(ids);
    const choir__sequence *s = scope->sequence;
    const int64_t t = choir_tensor_size(ids, 1);
    choir_tensor *table = grown_table(g, s ? s->length : choir__cache_reach(scope, t));
    table = choir_to(choir_in(scope, table), choir__device_of(ids));
    if (scope->cache)
        positions = choir__cache_positions(scope);
    if (positions)
        return choir_embedding(table, positions); /* (B, T, D) */
    if (!s || table->poisoned)
        return table;
    table = choir_narrow(table, 0, 0, s->length); /* which may be longer */
    return choir__sequence_own(scope, table, 0);
}

/* in: ids, and perhaps documents and positions. Rotary attention depends on the distance of
 * positions alone, but its bits on the positions: with those that begin again with each
 * document, a document has the same in any row. */
static choir_tensor *llama_forward(choir_module *self, choir_tensor *const *in, int count)
{
    llama *g = (llama *)self;
    choir_tensor *ids = in[0]; /* (B, T) i64 */
    if (choir_tensor_ndim(ids) != 2 || choir_tensor_size(ids, 1) > g->sizes.context)
        return choir__poison(choir_tensor_scope(ids), CHOIR_ERR_SHAPE,
            "llama: expected ids (B, T) with T up to its context of %lld, got %s",
            (long long)g->sizes.context, choir__shape_text(choir_tensor_shape(ids)));
    choir_tensor *table = table_for(g, ids, count > 2 ? in[2] : NULL);
    choir_tensor *x = choir_forward(g->embed_tokens, ids); /* (B, T, C) */
    choir_tensor *apart =
        choir__model_apart(count > 1 ? in[1] : NULL, ids, choir_tensor_dtype(x));
    for (int64_t i = 0; i < g->sizes.layers; i++)
        x = apart ? choir_forward(g->layers[i], x, table, apart)
                  : choir_forward(g->layers[i], x, table);
    x = choir__norm_for(g->norm, choir__cache_last(x), CHOIR__FOR_A_PRODUCT);
    choir_tensor *scores =
        g->head ? choir_linear(x, g->head, NULL) : choir_forward(g->lm_head, x);
    choir__done_with(x);
    return scores;
}

static const choir_module_class llama_class = {"llama", sizeof(llama), llama_forward, 3};

choir_module *choir__llama_new(choir_scope *run, const choir__llama_sizes *s)
{
    llama *g = choir_module_new(run, &llama_class);
    g->sizes = *s;
    choir_module_child(&g->base, "model.embed_tokens", &g->embed_tokens,
        choir_nn_embedding_with(run, s->vocab, s->width, choir_init_normal(0, 0.02), s->pad));
    for (int64_t i = 0; i < s->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%d", (int)i);
        choir_module_child(&g->base, name, &g->layers[i], new_block(run, s));
    }
    choir_module_child(
        &g->base, "model.norm", &g->norm, choir_nn_rms_norm(run, s->width, (float)s->eps));
    if (s->tied)
        choir_module_tie(
            &g->base, "lm_head.weight", &g->head, choir__embedding_table(g->embed_tokens));
    else
        choir_module_child(
            &g->base, "lm_head", &g->lm_head, new_linear(run, s->width, s->vocab, false));
    return &g->base;
}
