/* Attention of Llama and its relatives: grouped heads, rotary positions; perhaps one matrix for
 * queries, keys and values, norms of single heads, heads that turn in part, a soft cap. */
#include <math.h>
#include <string.h>

#include "nn/models/llama_layers.h"
#include "nn/module.h"
#include "tensor/sequence.h"

choir_module *choir__llama_linear(choir_scope *run, int64_t in, int64_t out, bool bias)
{
    return choir_nn_linear_with(run, in, out, bias, choir_init_normal(0, 0.02));
}

choir_module *choir__llama_norm(choir_scope *run, const choir__llama_sizes *s, int64_t width)
{
    return s->traits & CHOIR__TRAIT_ONE_MORE
               ? choir__rms_norm_of_one_more(run, width, (float)s->eps)
               : choir_nn_rms_norm(run, width, (float)s->eps);
}

/* --- kinds of layers --- */

char choir__llama_kind(const choir__llama_sizes *s, int64_t layer)
{
    if (!*s->pattern)
        return s->window ? 's' : 'f';
    return s->pattern[layer % (int64_t)strlen(s->pattern)];
}

bool choir__llama_has_window(char kind)
{
    return kind == 's' || kind == 'w';
}

static bool turns(char kind)
{
    return kind == 'f' || kind == 's';
}

int64_t choir__llama_turning(const choir__llama_sizes *s)
{
    return s->partial > 0 ? (int64_t)((double)s->head_dim * s->partial) : s->head_dim;
}

/* --- attention --- */

typedef struct attention {
    choir_module base;
    choir_module *q_proj, *k_proj, *v_proj, *o_proj;
    choir_module *qkv_proj; /* in place of the first three */
    choir_module *q_norm, *k_norm;
    int64_t head_dim, turning, window;
    int64_t heads, kv_heads; /* in the whole model */
    float scale, softcap;
    bool turns;
} attention;

/* (B, T, N D) -> (B, T, N, D) without a copy; N is the number of heads on this rank. */
static choir_tensor *by_heads(choir_tensor *x, int64_t head_dim)
{
    choir_shape s = choir_tensor_shape(x);
    return choir_reshape(
        x, choir_dims(s.dim[0], s.dim[1], choir__cols(x) / head_dim, head_dim));
}

/* Turns the first dimensions of each head of x (B, T, N, D); all of them, unless `turning` is
 * less than D. */
static choir_tensor *turned(choir_tensor *x, const attention *a, choir_tensor *table)
{
    if (a->turning == a->head_dim)
        return choir_rotary(x, table, 0);
    choir_tensor *parts[2] = {choir_rotary(choir_narrow(x, 3, 0, a->turning), table, 0),
        choir_narrow(x, 3, a->turning, a->head_dim - a->turning)};
    return choir__cat_features(parts, 2, 3);
}

/* (B, T, N D) -> (B, N, T, D), each head perhaps normed, and rotated by its position. */
static choir_tensor *turned_heads(
    choir_tensor *x, const attention *a, choir_module *norm, choir_tensor *table)
{
    choir_tensor *straight = by_heads(x, a->head_dim);
    choir_tensor *normed = norm ? choir__norm_of_heads(norm, straight) : straight;
    choir_tensor *y = a->turns ? turned(normed, a, table) : normed;
    if (y != normed)
        choir__done_with(normed);
    if (y != straight) {
        choir__done_with(straight);
        choir__done_with(x);
    }
    return choir_transpose(y, 1, 2);
}

/* Returns queries (0), keys (1) or values (2), (B, T, N D), of x, or of the results of the one
 * matrix for all of them. */
static choir_tensor *projected(
    const attention *a, choir_tensor *x, choir_tensor *all, int which)
{
    if (!all)
        return choir_forward(which == 0 ? a->q_proj : which == 1 ? a->k_proj : a->v_proj, x);
    const int64_t one = choir__cols(all) / (a->heads + 2 * a->kv_heads);
    const int64_t q = one * a->heads, kv = one * a->kv_heads;
    return which == 0 ? choir_narrow(all, 2, 0, q)
                      : choir_narrow(all, 2, q + (which - 1) * kv, kv);
}

/* in: x (B, T, C), the table of rotary positions, and perhaps a bias of the scores */
static choir_tensor *attention_forward(choir_module *self, choir_tensor *const *in, int count)
{
    attention *a = (attention *)self;
    choir_tensor *all = a->qkv_proj ? choir_forward(a->qkv_proj, in[0]) : NULL;
    choir_tensor *q = turned_heads(projected(a, in[0], all, 0), a, a->q_norm, in[1]);
    choir_tensor *k = turned_heads(projected(a, in[0], all, 1), a, a->k_norm, in[1]);
    choir_tensor *v = by_heads(projected(a, in[0], all, 2), a->head_dim);
    choir_attention_opts opts = choir_attention_defaults();
    opts.causal = true;
    opts.window = a->window;
    opts.scale = a->scale;
    opts.softcap = a->softcap;
    opts.bias = count > 2 ? in[2] : NULL;
    choir_tensor *y = choir_attention_with(q, k, choir_transpose(v, 1, 2), opts);
    y = choir_flatten(choir_transpose(y, 1, 2), 2); /* (B, T, H D) */
    return choir_forward(a->o_proj, y);
}

static const choir_module_class attention_class = {
    "llama_attention", sizeof(attention), attention_forward, 3};

static void add_projections(attention *a, choir_scope *run, const choir__llama_sizes *s)
{
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    bool bias = s->attention_bias || (s->traits & CHOIR__TRAIT_QKV_BIAS);
    if (s->traits & CHOIR__TRAIT_FUSED) {
        choir_module_child(&a->base, "qkv_proj", &a->qkv_proj,
            choir__llama_linear(run, s->width, q + 2 * kv, bias));
    } else {
        choir_module_child(
            &a->base, "q_proj", &a->q_proj, choir__llama_linear(run, s->width, q, bias));
        choir_module_child(
            &a->base, "k_proj", &a->k_proj, choir__llama_linear(run, s->width, kv, bias));
        choir_module_child(
            &a->base, "v_proj", &a->v_proj, choir__llama_linear(run, s->width, kv, bias));
    }
    choir_module_child(&a->base, "o_proj", &a->o_proj,
        choir__llama_linear(run, q, s->width, s->attention_bias));
    if (!(s->traits & CHOIR__TRAIT_QK_NORM))
        return;
    choir_module_child(&a->base, "q_norm", &a->q_norm, choir__llama_norm(run, s, s->head_dim));
    choir_module_child(&a->base, "k_norm", &a->k_norm, choir__llama_norm(run, s, s->head_dim));
}

choir_module *choir__llama_attention(choir_scope *run, const choir__llama_sizes *s, char kind)
{
    attention *a = choir_module_new(run, &attention_class);
    bool fused = s->traits & CHOIR__TRAIT_FUSED, normed = s->traits & CHOIR__TRAIT_QK_NORM;
    a->head_dim = s->head_dim;
    a->turning = choir__llama_turning(s);
    a->window = choir__llama_has_window(kind) ? s->window : 0;
    a->heads = s->heads;
    a->kv_heads = s->kv_heads;
    a->scale = s->query_scale > 0 ? (float)(1 / sqrt(s->query_scale)) : 0;
    a->softcap = (float)s->softcap;
    a->turns = turns(kind);
    add_projections(a, run, s);
    choir__module_heads(&a->base, (choir__heads_of){.qkv = fused ? "qkv_proj" : NULL,
                                      .q = "q_proj",
                                      .k = "k_proj",
                                      .v = "v_proj",
                                      .out = "o_proj",
                                      .q_norm = normed ? "q_norm" : NULL,
                                      .k_norm = normed ? "k_norm" : NULL,
                                      .heads = s->heads,
                                      .kv_heads = s->kv_heads});
    return &a->base;
}
