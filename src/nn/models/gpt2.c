/* GPT-2 (Radford et al., 2019): token and position embeddings, pre-norm blocks, a final norm,
 * and a head tied to the token embedding. Initial values as published: normal of deviation
 * 0.02, the layers that write to the residual stream scaled down by sqrt(2 layers). Parameter
 * names are those of its published weights. */
#include <math.h>
#include <stdio.h>

#include "base/options.h"
#include "nn/models/models.h"
#include "nn/module.h"

enum { MAX_LAYERS = 256 };

struct sizes {
    int64_t layers, heads, width, context, vocab;
    double dropout;
};

typedef struct gpt2 {
    choir_module base;
    choir_module *wte, *wpe, *drop, *ln_f;
    choir_tensor *head; /* wte's weight (V, C) again */
    choir_module *h[MAX_LAYERS];
    int layers;
    int64_t context;
} gpt2;

static choir_tensor *positions(choir_scope *scope, int64_t t)
{
    int64_t *ids = choir__arena_get(&scope->arena, (size_t)t * sizeof *ids);
    for (int64_t i = 0; i < t; i++)
        ids[i] = i;
    choir_tensor *x = choir__tensor_new(scope, scope->device, CHOIR_I64, choir_dims(t));
    if (!x->poisoned)
        choir__launch_upload(scope->device, choir__data(x), ids, (size_t)t * sizeof *ids);
    return x;
}

static choir_tensor *gpt2_forward(choir_module *self, choir_tensor *const *in, int count)
{
    gpt2 *g = (gpt2 *)self;
    choir_tensor *ids = in[0]; /* (B, T) i64 */
    (void)count;
    int64_t t = choir_tensor_size(ids, 1);
    if (choir_tensor_ndim(ids) != 2 || t > g->context)
        return choir__poison(choir_tensor_scope(ids), CHOIR_ERR_SHAPE,
            "gpt2: wants ids (B, T) with T up to its context of %lld, not %s",
            (long long)g->context, choir__shape_text(choir_tensor_shape(ids)));
    choir_tensor *where =
        choir_forward(g->wpe, positions(choir_tensor_scope(ids), t)); /* (T, C) */
    choir_tensor *token = choir_forward(g->wte, ids);                 /* (B, T, C) */
    choir_tensor *x = choir_add(token, where);
    choir__done_with(token);
    x = choir_forward(g->drop, x);
    for (int i = 0; i < g->layers; i++)
        x = choir_forward(g->h[i], x);
    x = choir_forward(g->ln_f, x);
    choir_tensor *scores = choir_linear(x, g->head, NULL); /* (B, T, V) */
    choir__done_with(x);
    return scores;
}

static const choir_module_class gpt2_class = {"gpt2", sizeof(gpt2), gpt2_forward};

static choir_module *new_gpt2(choir_scope *run, const struct sizes *s)
{
    gpt2 *g = choir_module_new(run, &gpt2_class);
    g->layers = (int)s->layers;
    g->context = s->context;
    choir_init init = choir_init_normal(0, 0.02);
    choir_module_child(
        &g->base, "wte", &g->wte, choir_nn_embedding(run, s->vocab, s->width, init));
    choir_module_child(
        &g->base, "wpe", &g->wpe, choir_nn_embedding(run, s->context, s->width, init));
    choir_module_child(&g->base, "drop", &g->drop, choir_nn_dropout(run, (float)s->dropout));
    for (int i = 0; i < g->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        choir_module_child(&g->base, name, &g->h[i],
            choir_nn_transformer_block(run, s->width, (int)s->heads, true, (float)s->dropout,
                0.02 / sqrt(2 * (double)s->layers)));
    }
    choir_module_child(&g->base, "ln_f", &g->ln_f, choir_nn_layer_norm(run, s->width));
    choir_module_tie(&g->base, "lm_head", &g->head, choir__embedding_table(g->wte));
    return &g->base;
}

static choir_status parse(const char *text, struct sizes *s)
{
    *s = (struct sizes){12, 12, 768, 1024, 0, 0};
    choir__option known[] = {{"layers", CHOIR__INT, &s->layers, 1, MAX_LAYERS},
        {"heads", CHOIR__INT, &s->heads, 1, 1024}, {"width", CHOIR__INT, &s->width, 1, 1 << 20},
        {"context", CHOIR__INT, &s->context, 1, 1 << 20},
        {"vocab", CHOIR__INT, &s->vocab, 1, 1 << 24},
        {"dropout", CHOIR__FLOAT, &s->dropout, 0, 0.99}, {NULL}};
    choir_status status = choir__options_parse(text, "model gpt2", known);
    if (status == CHOIR_OK && s->width % s->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model gpt2: heads=%lld does not divide width=%lld", (long long)s->heads,
            (long long)s->width);
    return status;
}

static choir_status describe(const char *text, choir__model_info *info)
{
    struct sizes s;
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    if (s.vocab && info->classes > s.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model gpt2: vocab=%lld is too small for the data's %lld tokens",
            (long long)s.vocab, (long long)info->classes);
    if (s.vocab)
        info->classes = s.vocab;
    if (!info->classes)
        info->classes = 50257;
    info->task = CHOIR__LANGUAGE;
    info->input = choir_dims(s.context);
    info->items = s.context;
    snprintf(info->config, sizeof info->config,
        "gpt2:layers=%lld,heads=%lld,width=%lld,context=%lld,vocab=%lld,dropout=%g",
        (long long)s.layers, (long long)s.heads, (long long)s.width, (long long)s.context,
        (long long)info->classes, s.dropout);
    return CHOIR_OK;
}

static choir_status build(
    const char *text, choir_scope *run, choir__model_info *info, choir_module **module)
{
    struct sizes s;
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    s.vocab = info->classes;
    *module = new_gpt2(run, &s);
    return choir_scope_status(run);
}

const choir__model_spec choir__model_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2: layers=12,heads=12,width=768,context=1024,vocab=(the data's),dropout=0",
    .describe = describe,
    .build = build,
};
