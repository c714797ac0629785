/* Llama (Touvron et al., 2023) and its relatives: token embeddings; pre-norm blocks of
 * grouped-query attention with rotary positions, and a SwiGLU; a final norm; a head of its own
 * or tied to the embeddings. Norms are RMS norms, layers have no biases, and positions have no
 * parameters. What a family does otherwise is in its traits and sizes (llama.h). Parameter
 * names follow the published weights; initial values are normal with deviation 0.02. */
#include "nn/models/llama_layers.h"

#include <math.h>
#include <stdio.h>

#include "nn/module.h"
#include "tensor/cache.h"
#include "tensor/sequence.h"

/* --- the gated layers --- */

typedef struct mlp {
    choir_module base;
    choir_module *gate_proj, *up_proj, *down_proj;
    choir_module *gate_up_proj; /* in place of the first two: the gate, then up */
    bool gelu;
} mlp;

static choir_tensor *gated(const mlp *m, choir_tensor *x) /* (B, T, hidden) */
{
    if (m->gate_up_proj)
        return choir_swiglu(choir_forward(m->gate_up_proj, x), NULL);
    choir_tensor *gate = choir_forward(m->gate_proj, x), *up = choir_forward(m->up_proj, x);
    return m->gelu ? choir_mul(choir_gelu_tanh(gate), up) : choir_swiglu(gate, up);
}

static choir_tensor *mlp_forward(choir_module *self, choir_tensor *const *in, int count)
{
    mlp *m = (mlp *)self;
    (void)count;
    choir_tensor *h = gated(m, in[0]);
    choir_tensor *y = choir_forward(m->down_proj, h);
    choir__done_with(h);
    return y;
}

static const choir_module_class mlp_class = {"llama_mlp", sizeof(mlp), mlp_forward, 1};

static choir_module *new_mlp(choir_scope *run, const choir__llama_sizes *s)
{
    mlp *m = choir_module_new(run, &mlp_class);
    m->gelu = s->traits & CHOIR__TRAIT_GELU;
    if (s->traits & CHOIR__TRAIT_FUSED) {
        choir_module_child(&m->base, "gate_up_proj", &m->gate_up_proj,
            choir__llama_linear(run, s->width, 2 * s->hidden, s->mlp_bias));
    } else {
        choir_module_child(&m->base, "gate_proj", &m->gate_proj,
            choir__llama_linear(run, s->width, s->hidden, s->mlp_bias));
        choir_module_child(&m->base, "up_proj", &m->up_proj,
            choir__llama_linear(run, s->width, s->hidden, s->mlp_bias));
    }
    choir_module_child(&m->base, "down_proj", &m->down_proj,
        choir__llama_linear(run, s->hidden, s->width, s->mlp_bias));
    return &m->base;
}

/* --- the block --- */

typedef struct block {
    choir_module base;
    choir_module *self_attn, *mlp, *input_layernorm, *post_attention_layernorm;
    /* with norms of results: before the gated layers and behind them */
    choir_module *pre_feedforward_layernorm, *post_feedforward_layernorm;
} block;

/* Returns a layer's result, normed if it has a norm behind it. */
static choir_tensor *result_of(choir_tensor *y, choir_module *norm)
{
    if (!norm)
        return y;
    choir_tensor *normed = choir__norm_for(norm, y, CHOIR__FOR_ANYONE);
    choir__done_with(y);
    return normed;
}

static choir_tensor *block_forward(choir_module *self, choir_tensor *const *in, int count)
{
    block *b = (block *)self;
    bool post = b->post_feedforward_layernorm;
    choir_tensor *x = in[0]; /* (B, T, C) */
    choir_tensor *h = choir__norm_for(b->input_layernorm, x, CHOIR__FOR_PRODUCTS);
    choir_tensor *a = count > 2 ? choir_forward(b->self_attn, h, in[1], in[2])
                                : choir_forward(b->self_attn, h, in[1]);
    choir__done_with(h);
    a = result_of(a, post ? b->post_attention_layernorm : NULL);
    h = choir__norm_of_sum(post ? b->pre_feedforward_layernorm : b->post_attention_layernorm, x,
        a, CHOIR__FOR_PRODUCTS, &x);
    choir__done_with(a);
    a = choir_forward(b->mlp, h);
    choir__done_with(h);
    a = result_of(a, b->post_feedforward_layernorm);
    x = choir_add(x, a);
    choir__done_with(a);
    return x;
}

static const choir_module_class block_class = {"llama_block", sizeof(block), block_forward, 3};

static choir_module *new_block(choir_scope *run, const choir__llama_sizes *s, char kind)
{
    block *b = choir_module_new(run, &block_class);
    choir_module_child(
        &b->base, "self_attn", &b->self_attn, choir__llama_attention(run, s, kind));
    choir_module_child(&b->base, "mlp", &b->mlp, new_mlp(run, s));
    choir_module_child(
        &b->base, "input_layernorm", &b->input_layernorm, choir__llama_norm(run, s, s->width));
    choir_module_child(&b->base, "post_attention_layernorm", &b->post_attention_layernorm,
        choir__llama_norm(run, s, s->width));
    if (!(s->traits & CHOIR__TRAIT_POST_NORMS))
        return &b->base;
    choir_module_child(&b->base, "pre_feedforward_layernorm", &b->pre_feedforward_layernorm,
        choir__llama_norm(run, s, s->width));
    choir_module_child(&b->base, "post_feedforward_layernorm", &b->post_feedforward_layernorm,
        choir__llama_norm(run, s, s->width));
    return &b->base;
}

/* --- tables of rotary positions --- */

/* A table, the tokens of the texts that it is for, and its theta. */
typedef struct table_of {
    choir_tensor *table;
    int64_t length;
} table_of;

enum { GLOBAL, LOCAL, TABLES };

/* --- the model --- */

typedef struct llama {
    choir_module base;
    choir_module *embed_tokens, *norm, *lm_head;
    choir_tensor *head;      /* tied: the embeddings (V, C), and no lm_head */
    table_of tables[TABLES]; /* up to the longest length so far */
    choir_module *layers[CHOIR__LLAMA_LAYERS];
    choir__llama_sizes sizes;
} llama;

/* Returns the length that stands for texts of t tokens: the same for all texts with the same
 * rates. */
static int64_t text_length(const choir_rotary_opts *o, int64_t t)
{
    bool longer = t > o->original_context;
    switch (o->scaling) {
    case CHOIR_ROTARY_DYNAMIC: return longer ? t : o->original_context;
    case CHOIR_ROTARY_LONGROPE: return longer ? o->original_context + 1 : o->original_context;
    default: return 1;
    }
}

/* Returns the table of t positions for texts of t tokens. It grows in powers of two up to the
 * context, so that a long context costs nothing until it is used. An outgrown table stays with
 * the run, because backward may still read it. */
static choir_tensor *grown_table(llama *g, int which, int64_t t)
{
    const choir__llama_sizes *s = &g->sizes;
    table_of *of = &g->tables[which];
    choir_rotary_opts opts = s->rotary;
    opts.short_factors = s->short_factors;
    opts.long_factors = s->long_factors;
    if (which == LOCAL)
        opts = (choir_rotary_opts){.theta = s->local_theta};
    opts.length = text_length(&opts, t);
    int64_t have = of->table ? choir_tensor_size(of->table, 0) : 64;
    if (of->table && have >= t && of->length == opts.length)
        return of->table;
    while (have < t)
        have *= 2;
    of->length = opts.length;
    of->table = choir_rotary_table(g->base.run, CHOIR_F32,
        choir__min(have, choir__max(s->context, t)), choir__llama_turning(s), opts);
    return of->table;
}

/* Texts that have outgrown the rates of a cache's keys are read again. */
static void check_cache(const llama *g, choir_scope *scope, int64_t samples, int64_t t)
{
    const choir_rotary_opts *o = &g->sizes.rotary;
    for (int64_t i = 0; scope->cache && i < samples; i++) {
        int64_t before = choir__cache_before(scope, i);
        if (before && text_length(o, before) != text_length(o, before + t))
            choir__cache_outgrow(scope, i);
    }
}

/* Returns the rows of a cache's next tokens, (B, T, D), each text's from the table for its
 * length. */
static choir_tensor *rows_for_cache(llama *g, int which, const choir_tensor *ids)
{
    choir_scope *scope = choir_tensor_scope(ids);
    const int64_t b = choir_tensor_size(ids, 0), t = choir_tensor_size(ids, 1);
    choir_tensor *positions = choir__cache_positions(scope), *rows = NULL;
    for (int64_t i = 0, end; i < b; i = end) {
        const int64_t reach = choir__cache_before(scope, i) + t;
        int64_t most = reach;
        for (end = i + 1; end < b; end++) { /* texts that share a table */
            int64_t other = choir__cache_before(scope, end) + t;
            if (text_length(&g->sizes.rotary, other) != text_length(&g->sizes.rotary, reach))
                break;
            most = choir__max(most, other);
        }
        choir_tensor *table =
            choir_to(choir_in(scope, grown_table(g, which, most)), choir__device_of(ids));
        choir_tensor *own = choir_embedding(table, choir_narrow(positions, 0, i, end - i));
        rows = rows ? choir_cat((choir_tensor *[]){rows, own}, 2, 0) : own;
    }
    return rows;
}

/* Returns the table on the device of the ids, which for a replica of the model is not the
 * table's own, with the rows of their tokens where sequences are cut, follow a cache, or have
 * positions. A copy belongs to the step.
 */
static choir_tensor *table_for(
    llama *g, int which, const choir_tensor *ids, choir_tensor *positions)
{
    choir_scope *scope = choir_tensor_scope(ids);
    const choir__sequence *s = scope->sequence;
    const int64_t t = choir_tensor_size(ids, 1);
    if (scope->cache)
        return rows_for_cache(g, which, ids);
    choir_tensor *table = grown_table(g, which, s ? s->length : t);
    table = choir_to(choir_in(scope, table), choir__device_of(ids));
    if (positions)
        return choir_embedding(table, positions); /* (B, T, D) */
    if (!s || table->poisoned)
        return table;
    table = choir_narrow(table, 0, 0, s->length); /* which may be longer */
    return choir__sequence_own(scope, table, 0);
}

/* (B, T, C) -> (B, T, V) */
static choir_tensor *scores_of(const llama *g, choir_tensor *x)
{
    const double cap = g->sizes.final_softcap;
    choir_tensor *scores =
        g->head ? choir_linear(x, g->head, NULL) : choir_forward(g->lm_head, x);
    if (cap > 0)
        scores = choir_affine(choir_tanh(choir_affine(scores, 1 / cap, 0)), cap, 0);
    return scores;
}

static bool is_local(const llama *g, int64_t layer)
{
    return g->sizes.local_theta > 0 &&
           choir__llama_has_window(choir__llama_kind(&g->sizes, layer));
}

/* in: ids, and perhaps documents and positions. Rotary attention depends on the distance of
 * positions alone, but its bits on the positions: with those that begin again with each
 * document, a document has the same in any row. */
static choir_tensor *llama_forward(choir_module *self, choir_tensor *const *in, int count)
{
    llama *g = (llama *)self;
    choir_tensor *ids = in[0], *tables[TABLES] = {NULL}; /* (B, T) i64 */
    if (choir_tensor_ndim(ids) != 2 || choir_tensor_size(ids, 1) > g->sizes.context)
        return choir__poison(choir_tensor_scope(ids), CHOIR_ERR_SHAPE,
            "llama: expected ids (B, T) with T up to its context of %lld, got %s",
            (long long)g->sizes.context, choir__shape_text(choir_tensor_shape(ids)));
    check_cache(
        g, choir_tensor_scope(ids), choir_tensor_size(ids, 0), choir_tensor_size(ids, 1));
    choir_tensor *x = choir_forward(g->embed_tokens, ids); /* (B, T, C) */
    if (g->sizes.traits & CHOIR__TRAIT_SCALED)
        x = choir_affine(x, (double)(float)sqrt((double)g->sizes.width), 0);
    choir_tensor *apart =
        choir__model_apart(count > 1 ? in[1] : NULL, ids, choir_tensor_dtype(x));
    for (int64_t i = 0; i < g->sizes.layers; i++) {
        int which = is_local(g, i) ? LOCAL : GLOBAL;
        if (!tables[which])
            tables[which] = table_for(g, which, ids, count > 2 ? in[2] : NULL);
        x = apart ? choir_forward(g->layers[i], x, tables[which], apart)
                  : choir_forward(g->layers[i], x, tables[which]);
    }
    x = choir__norm_for(g->norm, choir__cache_last(x), CHOIR__FOR_A_PRODUCT);
    choir_tensor *scores = scores_of(g, x);
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
        choir_module_child(
            &g->base, name, &g->layers[i], new_block(run, s, choir__llama_kind(s, i)));
    }
    choir_module_child(&g->base, "model.norm", &g->norm, choir__llama_norm(run, s, s->width));
    if (s->tied)
        choir_module_tie(
            &g->base, "lm_head.weight", &g->head, choir__embedding_table(g->embed_tokens));
    else
        choir_module_child(&g->base, "lm_head", &g->lm_head,
            choir__llama_linear(run, s->width, s->vocab, false));
    return &g->base;
}
