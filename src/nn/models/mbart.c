/* Pre-norm blocks of self-attention, attention to the encoder, and a two-layer network, with
 * the names of transformers' MBartForCausalLM; the head is the token embedding. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nn/models/donut.h"
#include "nn/module.h"

static const choir_init init = {CHOIR_INIT_NORMAL, 0, 0.02};

static choir_module *linear(choir_scope *run, int64_t in, int64_t out)
{
    return choir_nn_linear_with(run, in, out, true, init);
}

/* --- attention: queries of x, keys and values of y --- */

typedef struct attention {
    choir_module base;
    choir_module *k_proj, *v_proj, *q_proj, *out_proj;
    int64_t heads;
    bool causal;
} attention;

static choir_tensor *attention_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attention *a = (attention *)self;
    choir_tensor *x = in[0], *y = count > 1 ? in[1] : in[0]; /* (B, T, C), (B, S, C) */
    choir_attention_opts opts = choir_attention_defaults();
    opts.causal = a->causal;
    /* statements have an order, which sums in backward follow */
    choir_tensor *v = choir_forward(a->v_proj, y);
    choir_tensor *k = choir_forward(a->k_proj, y);
    choir_tensor *q = choir_forward(a->q_proj, x);
    choir_tensor *out = choir__attention_of_heads(q, k, v, a->heads, opts);
    return choir_forward(a->out_proj, out);
}

static const choir_module_class attention_class = {
    "mbart attention", sizeof(attention), attention_forward, 2};

static choir_module *new_attention(choir_scope *run, const choir__mbart_sizes *n, bool causal)
{
    attention *a = choir_module_new(run, &attention_class);
    a->heads = n->heads;
    a->causal = causal;
    choir_module_child(&a->base, "k_proj", &a->k_proj, linear(run, n->width, n->width));
    choir_module_child(&a->base, "v_proj", &a->v_proj, linear(run, n->width, n->width));
    choir_module_child(&a->base, "q_proj", &a->q_proj, linear(run, n->width, n->width));
    choir_module_child(&a->base, "out_proj", &a->out_proj, linear(run, n->width, n->width));
    return &a->base;
}

/* --- a layer --- */

typedef struct layer {
    choir_module base;
    choir_module *self_attn, *self_attn_layer_norm, *encoder_attn, *encoder_attn_layer_norm,
        *fc1, *fc2, *final_layer_norm, *dropout;
} layer;

static choir_tensor *layer_forward(choir_module *self, choir_tensor *const *in, int count)
{
    layer *l = (layer *)self;
    choir_tensor *x = in[0], *states = in[1];
    (void)count;
    choir_tensor *y = choir_forward(l->self_attn, choir_forward(l->self_attn_layer_norm, x));
    x = choir_add(x, choir_forward(l->dropout, y));
    y = choir_forward(l->encoder_attn, choir_forward(l->encoder_attn_layer_norm, x), states);
    x = choir_add(x, choir_forward(l->dropout, y));
    y = choir_gelu(choir_forward(l->fc1, choir_forward(l->final_layer_norm, x)));
    return choir_add(x, choir_forward(l->dropout, choir_forward(l->fc2, y)));
}

static const choir_module_class layer_class = {"mbart layer", sizeof(layer), layer_forward, 2};

static choir_module *new_layer(choir_scope *run, const choir__mbart_sizes *n)
{
    layer *l = choir_module_new(run, &layer_class);
    int64_t c = n->width;
    choir_module_child(&l->base, "self_attn", &l->self_attn, new_attention(run, n, true));
    choir_module_child(&l->base, "self_attn_layer_norm", &l->self_attn_layer_norm,
        choir_nn_layer_norm(run, c));
    choir_module_child(
        &l->base, "encoder_attn", &l->encoder_attn, new_attention(run, n, false));
    choir_module_child(&l->base, "encoder_attn_layer_norm", &l->encoder_attn_layer_norm,
        choir_nn_layer_norm(run, c));
    choir_module_child(&l->base, "fc1", &l->fc1, linear(run, c, n->hidden));
    choir_module_child(&l->base, "fc2", &l->fc2, linear(run, n->hidden, c));
    choir_module_child(
        &l->base, "final_layer_norm", &l->final_layer_norm, choir_nn_layer_norm(run, c));
    choir_module_child(
        &l->base, "dropout", &l->dropout, choir_nn_dropout(run, (float)n->dropout));
    return &l->base;
}

/* --- the decoder --- */

typedef struct mbart {
    choir_module base;
    choir_module *embed_tokens, *embed_positions, *layernorm_embedding, *layer_norm, *dropout,
        *layers[CHOIR__MBART_LAYERS];
    choir_tensor *head;      /* embed_tokens's weight (V, C) again */
    choir_tensor *positions; /* (context) i64, of the run */
    choir__mbart_sizes n;
} mbart;

static choir_tensor *mbart_forward(choir_module *self, choir_tensor *const *in, int count)
{
    mbart *m = (mbart *)self;
    choir_tensor *ids = in[0], *states = count > 1 ? in[1] : NULL;
    choir_scope *s = choir_tensor_scope(ids);
    if (!states)
        return choir__poison(s, CHOIR_ERR_ARGUMENT,
            "mbart: expected ids and an encoder's states, got one input");
    if (choir_tensor_ndim(ids) != 2 || choir_tensor_size(ids, 1) > m->n.context)
        return choir__poison(s, CHOIR_ERR_SHAPE,
            "mbart: expected ids (B, T) with T up to its context of %lld, got %s",
            (long long)m->n.context, choir__shape_text(choir_tensor_shape(ids)));
    choir_tensor *at = choir_narrow(choir_in(s, m->positions), 0, 0, choir_tensor_size(ids, 1));
    choir_tensor *x =
        choir_scale(choir_forward(m->embed_tokens, ids), sqrt((double)m->n.width));
    x = choir_add(x, choir_forward(m->embed_positions, at)); /* (B, T, C) */
    x = choir_forward(m->dropout, choir_forward(m->layernorm_embedding, x));
    for (int i = 0; i < m->n.layers; i++)
        x = choir_forward(m->layers[i], x, states);
    return choir_linear(choir_forward(m->layer_norm, x), m->head, NULL);
}

static const choir_module_class mbart_class = {"mbart", sizeof(mbart), mbart_forward, 2};

static choir_tensor *new_positions(choir_scope *run, int64_t context)
{
    int64_t *ids = choir__alloc((size_t)context * sizeof *ids);
    for (int64_t i = 0; i < context; i++)
        ids[i] = i + CHOIR__MBART_OFFSET;
    choir_tensor *t = choir_from(run, CHOIR_I64, choir_dims(context), ids);
    free(ids);
    return t;
}

choir_module *choir__mbart_new(choir_scope *run, const choir__mbart_sizes *n)
{
    mbart *m = choir_module_new(run, &mbart_class);
    m->n = *n;
    choir_module_constant(&m->base, "positions", &m->positions, new_positions(run, n->context));
    choir_module_child(&m->base, "model.decoder.embed_tokens", &m->embed_tokens,
        choir_nn_embedding_with(run, n->vocab, n->width, init, n->pad));
    choir_module_child(&m->base, "model.decoder.embed_positions", &m->embed_positions,
        choir_nn_embedding(run, n->context + CHOIR__MBART_OFFSET, n->width, init));
    for (int i = 0; i < n->layers; i++) {
        char name[40];
        snprintf(name, sizeof name, "model.decoder.layers.%d", i);
        choir_module_child(&m->base, name, &m->layers[i], new_layer(run, n));
    }
    choir_module_child(&m->base, "model.decoder.layernorm_embedding", &m->layernorm_embedding,
        choir_nn_layer_norm(run, n->width));
    choir_module_child(&m->base, "model.decoder.layer_norm", &m->layer_norm,
        choir_nn_layer_norm(run, n->width));
    choir_module_child(&m->base, "model.decoder.dropout", &m->dropout,
        choir_nn_dropout(run, (float)n->dropout));
    choir_module_tie(
        &m->base, "lm_head.weight", &m->head, choir__embedding_table(m->embed_tokens));
    return &m->base;
}
