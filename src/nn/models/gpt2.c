/* GPT-2 (Radford et al., 2019): token and position embeddings, pre-norm blocks, a final norm,
 * and a head tied to the token embedding. Initial values are the published ones: normal with
 * deviation 0.02, and layers that write to the residual stream divided by sqrt(2 layers).
 * Parameter names follow the published weights, with the head: "transformer.wte.weight",
 * ... */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/options.h"
#include "base/number.h"
#include "nn/models/published.h"
#include "nn/module.h"
#include "tensor/cache.h"

enum { MAX_LAYERS = 256 };

struct sizes {
    int64_t layers, heads, width, hidden, context, vocab;
    double dropout, eps;
};

typedef struct gpt2 {
    choir_module base;
    choir_module *wte, *wpe, *drop, *ln_f;
    choir_tensor *head; /* wte's weight (V, C) again */
    choir_module *h[MAX_LAYERS];
    int layers;
    int64_t context;
} gpt2;

static choir_tensor *gpt2_forward(choir_module *self, choir_tensor *const *in, int count)
{
    gpt2 *g = (gpt2 *)self;
    choir_tensor *ids = in[0];                          /* (B, T) i64 */
    choir_tensor *documents = count > 1 ? in[1] : NULL; /* (B, T) */
    choir_tensor *positions = count > 2 ? in[2] : NULL; /* (B, T) i64 */
    int64_t t = choir_tensor_size(ids, 1);
    if (choir_tensor_ndim(ids) != 2 || t > g->context)
        return choir__poison(choir_tensor_scope(ids), CHOIR_ERR_SHAPE,
            "gpt2: expected ids (B, T) with T up to its context of %lld, got %s",
            (long long)g->context, choir__shape_text(choir_tensor_shape(ids)));
    if (!positions)
        positions = choir__model_positions(choir_tensor_scope(ids), t); /* (T) */
    choir_tensor *where = choir_forward(g->wpe, positions); /* (T, C) or (B, T, C) */
    choir_tensor *token = choir_forward(g->wte, ids);       /* (B, T, C) */
    choir_tensor *x = choir_add(token, where);
    choir__done_with(token);
    x = choir_forward(g->drop, x);
    choir_tensor *apart = choir__model_apart(documents, ids, choir_tensor_dtype(x));
    for (int i = 0; i < g->layers; i++)
        x = apart ? choir_forward(g->h[i], x, apart) : choir_forward(g->h[i], x);
    x = choir__norm_for(g->ln_f, choir__cache_last(x), CHOIR__FOR_A_PRODUCT);
    choir_tensor *scores = choir_linear(x, g->head, NULL); /* (B, T, V) */
    choir__done_with(x);
    return scores;
}

static const choir_module_class gpt2_class = {"gpt2", sizeof(gpt2), gpt2_forward, 3};

static choir_module *new_gpt2(choir_scope *run, const struct sizes *s)
{
    gpt2 *g = choir_module_new(run, &gpt2_class);
    g->layers = (int)s->layers;
    g->context = s->context;
    choir_init init = choir_init_normal(0, 0.02);
    choir_module_child(&g->base, "transformer.wte", &g->wte,
        choir_nn_embedding(run, s->vocab, s->width, init));
    choir_module_child(&g->base, "transformer.wpe", &g->wpe,
        choir_nn_embedding(run, s->context, s->width, init));
    choir_module_child(
        &g->base, "transformer.drop", &g->drop, choir_nn_dropout(run, (float)s->dropout));
    choir__block_opts block = {.width = s->width,
        .hidden = s->hidden,
        .heads = (int)s->heads,
        .causal = true,
        .dropout = (float)s->dropout,
        .eps = (float)s->eps,
        .residual_deviation = 0.02 / sqrt(2 * (double)s->layers)};
    for (int i = 0; i < g->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "transformer.h.%d", i);
        choir_module_child(&g->base, name, &g->h[i], choir__nn_block(run, block));
    }
    choir_module_child(&g->base, "transformer.ln_f", &g->ln_f,
        choir_nn_layer_norm_with(run, s->width, (float)s->eps));
    choir_module_tie(&g->base, "lm_head.weight", &g->head, choir__embedding_table(g->wte));
    return &g->base;
}

static choir_status parse(const char *text, struct sizes *s)
{
    *s = (struct sizes){12, 12, 768, 0, 1024, 0, 0, 1e-5};
    choir__option known[] = {{"layers", CHOIR__INT, &s->layers, 1, MAX_LAYERS},
        {"heads", CHOIR__INT, &s->heads, 1, 1024}, {"width", CHOIR__INT, &s->width, 1, 1 << 20},
        {"hidden", CHOIR__INT, &s->hidden, 1, 1 << 22},
        {"context", CHOIR__INT, &s->context, 1, 1 << 20},
        {"vocab", CHOIR__INT, &s->vocab, 1, 1 << 24},
        {"dropout", CHOIR__FLOAT, &s->dropout, 0, 0.99}, {"eps", CHOIR__FLOAT, &s->eps, 0, 0.1},
        {NULL}};
    choir_status status = choir__options_parse(text, "model gpt2", known);
    if (!s->hidden)
        s->hidden = 4 * s->width;
    if (status == CHOIR_OK && s->width % s->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model gpt2: heads=%lld does not divide width=%lld", (long long)s->heads,
            (long long)s->width);
    return status;
}

static choir_status describe(const char *text, choir_model_info *info)
{
    struct sizes s;
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_vocab("gpt2", s.vocab, info->classes);
    if (status != CHOIR_OK)
        return status;
    if (s.vocab)
        info->classes = s.vocab;
    if (!info->classes)
        info->classes = 50257;
    info->task = CHOIR_LANGUAGE;
    info->packs = true;
    info->input = choir_dims(s.context);
    info->items = s.context;
    snprintf(info->config, sizeof info->config,
        "gpt2:layers=%lld,heads=%lld,width=%lld,hidden=%lld,context=%lld,vocab=%lld,dropout=%g,"
        "eps=%g",
        (long long)s.layers, (long long)s.heads, (long long)s.width, (long long)s.hidden,
        (long long)s.context, (long long)info->classes, s.dropout, s.eps);
    return CHOIR_OK;
}

static choir_module *build(const char *text, choir_scope *run, const choir_model_info *info)
{
    struct sizes s;
    if (parse(text, &s) != CHOIR_OK)
        return NULL;
    s.vocab = info->classes;
    return new_gpt2(run, &s);
}

/* --- published form --- */

static const choir__config_key keys[] = {
    {"n_layer", .option = "layers", .absent = "12"},
    {"n_head", .option = "heads", .absent = "12"},
    {"n_embd", .option = "width", .absent = "768"},
    {"n_inner", .option = "hidden"},
    {"n_positions", .option = "context", .absent = "1024"},
    {"vocab_size", .option = "vocab", .absent = "50257"},
    {"resid_pdrop", .option = "dropout", .type = CHOIR__FLOAT, .absent = "0.1"},
    {"layer_norm_epsilon", .option = "eps", .type = CHOIR__FLOAT, .absent = "1e-05"},
    {"activation_function", .values = "gelu_new|gelu_pytorch_tanh"},
    {"scale_attn_weights", .values = "true"},
    {"scale_attn_by_inverse_layer_idx", .values = "false"},
    {"tie_word_embeddings", .values = "true"},
    {"attn_pdrop", .values = "0.0",
        .note = "attention dropout is not implemented and is ignored"},
    {"initializer_range", .values = "0.02",
        .note = "new weights start with a deviation of 0.02 here"},
    {NULL},
};

static choir_status read_config(choir__config *c)
{
    int64_t width = choir__config_int(c, "n_embd", 768), heads;
    heads = choir__config_int(c, "n_head", 12);
    if (width % heads)
        return choir__config_bad(
            c, "n_embd", "expected a multiple of n_head, %lld", (long long)heads);
    int64_t context = choir__config_int(c, "n_positions", 1024);
    if (choir__config_int(c, "n_ctx", context) != context)
        return choir__config_bad(
            c, "n_ctx", "that contradicts n_positions, %lld", (long long)context);
    const json_t *embedding = json_object_get(c->root, "embd_pdrop");
    const json_t *residual = json_object_get(c->root, "resid_pdrop");
    if (embedding && !json_equal(embedding, residual))
        choir__config_note(c,
            "%s: key 'embd_pdrop' differs from 'resid_pdrop', which holds for both here",
            c->path);
    return CHOIR_OK;
}

static void write_config(const char *text, json_t *root)
{
    char *dropout = choir__config_option(text, "dropout");
    json_object_set_new(
        root, "embd_pdrop", json_real(dropout ? choir__number_read(dropout, NULL) : 0));
    free(dropout);
}

static const choir__published published = {
    .type = "gpt2",
    .architectures = (const char *[]){"GPT2LMHeadModel", "GPT2Model", NULL},
    .keys = keys,
    .inert = (const char *[]){"reorder_and_upcast_attn", "summary_activation",
        "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
        NULL},
    .read = read_config,
    .write = write_config,
    .written = (const char *[]){"n_ctx", "embd_pdrop", NULL},
    .has_ends = true,
    .prefix = "transformer.",
    /* DialoGPT's, as it was published first */
    .older =
        (const choir__older_name[]){{"lm_head.decoder.weight", "lm_head.weight"}, {NULL, NULL}},
    /* causal masks, kept beside the weights by old versions */
    .ignored = (const char *[]){"*h.*.attn.bias", "*h.*.attn.masked_bias", NULL},
};

const choir__model_spec choir__model_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2: layers=12,heads=12,width=768,context=1024,vocab=(the data's),dropout=0,"
            "hidden=(4 width),eps=1e-5",
    .describe = describe,
    .build = build,
    .published = &published,
};
