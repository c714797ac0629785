/* Llama's and Mistral's options: text to sizes, sizes to text, and consistency checks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "base/number.h"
#include "nn/models/llama.h"
#include "tensor/scope.h"

struct options {
    choir__llama_sizes sizes;
    char size[64], rope[64];
};

/* The models that `size=` names, one per size: the most common one. */
struct published {
    const char *model, *size;
    choir__llama_sizes sizes;
};

static const struct published published[] = {
    {"llama", "7b",
        {.layers = 32,
            .heads = 32,
            .kv_heads = 32,
            .width = 4096,
            .hidden = 11008,
            .context = 4096,
            .eps = 1e-5,
            .rotary = {.theta = 10000}}}, /* Llama 2 */
    {"llama", "8b",
        {.layers = 32,
            .heads = 32,
            .kv_heads = 8,
            .width = 4096,
            .hidden = 14336,
            .context = 8192,
            .eps = 1e-5,
            .rotary = {.theta = 500000}}}, /* Llama 3 */
    {"llama", "1b",
        {.layers = 16,
            .heads = 32,
            .kv_heads = 8,
            .width = 2048,
            .hidden = 8192,
            .context = 131072,
            .eps = 1e-5,
            .tied = true,
            .rotary = {500000, CHOIR_ROTARY_LLAMA3, 32, 1, 4, 8192}}}, /* Llama 3.2 */
    {"mistral", "7b",
        {.layers = 32,
            .heads = 32,
            .kv_heads = 8,
            .width = 4096,
            .hidden = 14336,
            .context = 32768,
            .window = 4096,
            .eps = 1e-5,
            .rotary = {.theta = 10000}}},
};

static const char *const scalings[] = {[CHOIR_ROTARY_PLAIN] = "plain",
    [CHOIR_ROTARY_LINEAR] = "linear",
    [CHOIR_ROTARY_LLAMA3] = "llama3"};

static bool is_mistral(const char *text)
{
    return !strncmp(text, "mistral", 7);
}

static choir_status parse_keys(const char *text, struct options *o)
{
    choir__llama_sizes *s = &o->sizes;
    choir_rotary_opts *r = &s->rotary;
    choir__option known[] = {{"size", CHOIR__WORD, o->size, 0, 0},
        {"layers", CHOIR__INT, &s->layers, 1, CHOIR__LLAMA_LAYERS},
        {"heads", CHOIR__INT, &s->heads, 1, 1024},
        {"kv_heads", CHOIR__INT, &s->kv_heads, 1, 1024},
        {"head_dim", CHOIR__INT, &s->head_dim, 2, 4096},
        {"width", CHOIR__INT, &s->width, 1, 1 << 20},
        {"hidden", CHOIR__INT, &s->hidden, 1, 1 << 22},
        {"context", CHOIR__INT, &s->context, 1, 1 << 24},
        {"vocab", CHOIR__INT, &s->vocab, 1, 1 << 24},
        {"window", CHOIR__INT, &s->window, 0, 1 << 24},
        {"theta", CHOIR__FLOAT, &r->theta, 1, 1e12}, {"eps", CHOIR__FLOAT, &s->eps, 1e-12, 1},
        {"tied", CHOIR__FLAG, &s->tied, 0, 0},
        {"attention_bias", CHOIR__FLAG, &s->attention_bias, 0, 0},
        {"mlp_bias", CHOIR__FLAG, &s->mlp_bias, 0, 0}, {"rope", CHOIR__WORD, o->rope, 0, 0},
        {"factor", CHOIR__FLOAT, &r->factor, 1e-3, 1e6},
        {"low_freq", CHOIR__FLOAT, &r->low_freq, 1e-6, 1e6},
        {"high_freq", CHOIR__FLOAT, &r->high_freq, 1e-6, 1e6},
        {"original", CHOIR__INT, &r->original_context, 1, 1 << 24},
        {"pad", CHOIR__INT, &s->pad, 0, 1 << 24}, {NULL}};
    return choir__options_parse(
        text, is_mistral(text) ? "model mistral" : "model llama", known);
}

static choir_status take_size(const char *model, struct options *o)
{
    char list[128] = "";
    for (size_t i = 0; i < CHOIR_COUNT(published); i++) {
        if (strcmp(published[i].model, model))
            continue;
        if (!strcmp(published[i].size, o->size)) {
            o->sizes = published[i].sizes;
            o->sizes.pad = -1;
            return CHOIR_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
            published[i].size);
    }
    return choir__error(CHOIR_ERR_ARGUMENT, "model %s: unknown size '%s': choose one of %s",
        model, o->size, list);
}

/* Checks rope= and the options that depend on it. */
static choir_status check_rotary(const char *model, struct options *o)
{
    choir_rotary_opts *r = &o->sizes.rotary;
    for (size_t i = 0; *o->rope && i <= CHOIR_COUNT(scalings); i++) {
        if (i == CHOIR_COUNT(scalings))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "model %s: unknown rope '%s': choose one of plain, linear, llama3", model,
                o->rope);
        if (!strcmp(scalings[i], o->rope)) {
            r->scaling = i;
            break;
        }
    }
    bool banded = r->low_freq > 0 || r->high_freq > 0 || r->original_context > 0;
    if (r->scaling == CHOIR_ROTARY_PLAIN && (r->factor > 0 || banded))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: factor, low_freq, high_freq and original belong to rope=llama3, factor "
            "to rope=linear too; rope is plain",
            model);
    if (r->scaling == CHOIR_ROTARY_LINEAR && (!(r->factor > 0) || banded))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: expected rope=linear with factor, and with nothing else", model);
    if (r->scaling != CHOIR_ROTARY_LLAMA3)
        return CHOIR_OK;
    if (!(r->factor > 0) || !(r->low_freq > 0) || r->original_context < 1 ||
        !(r->high_freq > r->low_freq))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: expected rope=llama3 with factor, original, low_freq and a higher "
            "high_freq",
            model);
    return CHOIR_OK;
}

static choir_status check_heads(const char *model, const choir__llama_sizes *s, bool given)
{
    if (!given && s->width % s->heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: heads=%lld does not divide width=%lld; give a head_dim", model,
            (long long)s->heads, (long long)s->width);
    if (s->heads % s->kv_heads)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: kv_heads=%lld does not divide heads=%lld", model, (long long)s->kv_heads,
            (long long)s->heads);
    if (s->head_dim % 2)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: expected heads of an even number of dimensions, as rotary positions "
            "turn pairs, got %lld",
            model, (long long)s->head_dim);
    return CHOIR_OK;
}

/* The published form of a model with a window, Mistral, has no biases: nothing else could read
 * such weights. */
static choir_status check_biases(const char *model, const choir__llama_sizes *s, bool mistral)
{
    if ((!mistral && !s->window) || (!s->attention_bias && !s->mlp_bias))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s: %s=1 is for llama without a window; Mistral, the published form of models with "
        "a window, has no biases",
        model, s->attention_bias ? "attention_bias" : "mlp_bias");
}

static choir_status parse(const char *text, choir__llama_sizes *s)
{
    const char *model = is_mistral(text) ? "mistral" : "llama";
    struct options o = {.sizes = {.layers = 8,
                            .heads = 8,
                            .kv_heads = 0,
                            .width = 512,
                            .context = 512,
                            .window = is_mistral(text) ? 256 : 0,
                            .eps = 1e-5,
                            .pad = -1,
                            .rotary = {.theta = 10000}}};
    choir_status status = parse_keys(text, &o); /* options beside size= override it */
    if (status == CHOIR_OK && *o.size && (status = take_size(model, &o)) == CHOIR_OK)
        status = parse_keys(text, &o);
    *s = o.sizes;
    if (status != CHOIR_OK || (status = check_rotary(model, &o)) != CHOIR_OK)
        return status;
    bool given = s->head_dim > 0;
    s->rotary = o.sizes.rotary;
    if (!s->kv_heads) /* half of them, if that is a whole number */
        s->kv_heads = s->heads % 2 ? s->heads : s->heads / 2;
    if (!given)
        s->head_dim = s->width / s->heads;
    if (!s->hidden) /* as many parameters as 4 C with two matrices, in multiples of 64 */
        s->hidden = (s->width * 8 / 3 + 63) / 64 * 64;
    status = check_biases(model, s, is_mistral(text));
    return status == CHOIR_OK ? check_heads(model, s, given) : status;
}

static void write_config(const char *model, const choir__llama_sizes *s, char *to, size_t bytes)
{
    const choir_rotary_opts *r = &s->rotary;
    int used = choir__number_print(to, bytes,
        "%s:layers=%lld,heads=%lld,kv_heads=%lld,head_dim=%lld,width=%lld,hidden=%lld,"
        "context=%lld,vocab=%lld,window=%lld,theta=%.17g,eps=%.9g,tied=%d,attention_bias=%d,"
        "mlp_bias=%d",
        model, (long long)s->layers, (long long)s->heads, (long long)s->kv_heads,
        (long long)s->head_dim, (long long)s->width, (long long)s->hidden,
        (long long)s->context, (long long)s->vocab, (long long)s->window, r->theta, s->eps,
        s->tied, s->attention_bias, s->mlp_bias);
    if (r->scaling != CHOIR_ROTARY_PLAIN)
        used += choir__number_print(to + used, bytes - (size_t)used, ",rope=%s,factor=%.17g",
            scalings[r->scaling], r->factor);
    if (r->scaling == CHOIR_ROTARY_LLAMA3)
        used += choir__number_print(to + used, bytes - (size_t)used,
            ",low_freq=%.17g,high_freq=%.17g,original=%lld", r->low_freq, r->high_freq,
            (long long)r->original_context);
    if (s->pad >= 0)
        choir__number_print(to + used, bytes - (size_t)used, ",pad=%lld", (long long)s->pad);
}

static choir_status describe(const char *text, choir_model_info *info)
{
    const char *model = is_mistral(text) ? "mistral" : "llama";
    choir__llama_sizes s;
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    if (s.vocab && info->classes > s.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: vocab=%lld is too small for the data's %lld tokens", model,
            (long long)s.vocab, (long long)info->classes);
    if (s.vocab)
        info->classes = s.vocab;
    if (!info->classes)
        info->classes = 32000;
    s.vocab = info->classes;
    if (s.pad >= s.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s: pad=%lld is no token of a vocabulary of %lld", model, (long long)s.pad,
            (long long)s.vocab);
    info->task = CHOIR_LANGUAGE;
    info->packs = true;
    info->input = choir_dims(s.context);
    info->items = s.context;
    write_config(model, &s, info->config, sizeof info->config);
    return CHOIR_OK;
}

static choir_status build(
    const char *text, choir_scope *run, choir_model_info *info, choir_module **module)
{
    choir__llama_sizes s;
    choir_status status = parse(text, &s);
    if (status != CHOIR_OK)
        return status;
    s.vocab = info->classes;
    *module = choir__llama_new(run, &s);
    return choir__scope_status(run);
}

const choir__model_spec choir__model_llama = {
    .name = "llama",
    .help = "Llama: layers=8,heads=8,kv_heads=(half),width=512,hidden=(8/3 width),context=512,"
            "vocab=(the data's),head_dim,theta=10000,eps=1e-5,window=0,tied=0,attention_bias=0,"
            "mlp_bias=0,rope=plain|linear|llama3,pad=(none); or size=1b|7b|8b",
    .describe = describe,
    .build = build,
    .published = &choir__llama_published,
};

const choir__model_spec choir__model_mistral = {
    .name = "mistral",
    .help = "Mistral: Llama that sees the last `window` positions: window=256, the rest as "
            "llama's; or size=7b",
    .describe = describe,
    .build = build,
    .published = &choir__mistral_published,
};
