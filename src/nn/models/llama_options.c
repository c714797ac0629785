/* The options of Llama and its relatives: text to sizes, sizes to text, and consistency checks.
 * One table has all of them; a family has those that are marked as everyone's, and those that
 * it lists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/options.h"
#include "nn/models/llama.h"
#include "nn/models/published.h"
#include "tensor/scope.h"

static const char *const scalings[] = {[CHOIR_ROTARY_PLAIN] = "plain",
    [CHOIR_ROTARY_LINEAR] = "linear",
    [CHOIR_ROTARY_LLAMA3] = "llama3",
    [CHOIR_ROTARY_DYNAMIC] = "dynamic",
    [CHOIR_ROTARY_YARN] = "yarn",
    [CHOIR_ROTARY_LONGROPE] = "longrope"};

struct options {
    choir__llama_sizes sizes;
    char size[64], rope[64];
    const char *lists[2]; /* read from the text itself: they may be longer than an option */
};

enum { MOST_OPTIONS = 40 };

/* Writes the family's rows, in the order in which a text has them, and an empty one. */
static void rows_of(
    const choir__model_family *f, struct options *o, choir__option rows[MOST_OPTIONS])
{
    choir__llama_sizes *s = &o->sizes;
    choir_rotary_opts *r = &s->rotary;
    const struct {
        choir__option row;
        bool listed; /* only families that list it have it */
    } all[] = {{{"size", CHOIR__WORD, o->size, 0, 0}, false},
        {{"layers", CHOIR__INT, &s->layers, 1, CHOIR__LLAMA_LAYERS}, false},
        {{"heads", CHOIR__INT, &s->heads, 1, 1024}, false},
        {{"kv_heads", CHOIR__INT, &s->kv_heads, 1, 1024}, false},
        {{"head_dim", CHOIR__INT, &s->head_dim, 2, 4096}, false},
        {{"width", CHOIR__INT, &s->width, 1, 1 << 20}, false},
        {{"hidden", CHOIR__INT, &s->hidden, 1, 1 << 22}, false},
        {{"context", CHOIR__INT, &s->context, 1, 1 << 24}, false},
        {{"vocab", CHOIR__INT, &s->vocab, 1, 1 << 24}, false},
        {{"window", CHOIR__INT, &s->window, 0, 1 << 24}, true},
        {{"theta", CHOIR__FLOAT, &r->theta, 1, 1e12}, false},
        {{"eps", CHOIR__FLOAT, &s->eps, 1e-12, 1}, false},
        {{"tied", CHOIR__FLAG, &s->tied, 0, 0}, false},
        {{"attention_bias", CHOIR__FLAG, &s->attention_bias, 0, 0}, true},
        {{"mlp_bias", CHOIR__FLAG, &s->mlp_bias, 0, 0}, true},
        {{"pattern", CHOIR__TEXT, s->pattern, 0, 0}, true},
        {{"local_theta", CHOIR__FLOAT, &s->local_theta, 0, 1e12}, true},
        {{"partial", CHOIR__FLOAT, &s->partial, 1e-3, 1}, true},
        {{"query_scale", CHOIR__FLOAT, &s->query_scale, 1e-6, 1e6}, true},
        {{"softcap", CHOIR__FLOAT, &s->softcap, 0, 1e6}, true},
        {{"final_softcap", CHOIR__FLOAT, &s->final_softcap, 0, 1e6}, true},
        {{"rope", CHOIR__WORD, o->rope, 0, 0}, false},
        {{"factor", CHOIR__FLOAT, &r->factor, 1e-3, 1e6}, false},
        {{"low_freq", CHOIR__FLOAT, &r->low_freq, 1e-6, 1e6}, false},
        {{"high_freq", CHOIR__FLOAT, &r->high_freq, 1e-6, 1e6}, false},
        {{"original", CHOIR__INT, &r->original_context, 1, 1 << 24}, false},
        {{"attention_factor", CHOIR__FLOAT, &r->attention_factor, 1e-6, 1e6}, false},
        {{"unrounded", CHOIR__FLAG, &r->unrounded, 0, 0}, false},
        {{"short", CHOIR__STRING, &o->lists[0], 0, 0}, false},
        {{"long", CHOIR__STRING, &o->lists[1], 0, 0}, false},
        {{"pad", CHOIR__INT, &s->pad, 0, 1 << 24}, false}};
    _Static_assert(CHOIR_COUNT(all) < MOST_OPTIONS, "rows");
    int count = 0;
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        if (!all[i].listed || choir__config_among(f->options, all[i].row.key))
            rows[count++] = all[i].row;
    rows[count] = (choir__option){NULL};
}

static choir_status parse_rows(
    const choir__model_family *f, const char *text, struct options *o)
{
    char what[80];
    choir__option rows[MOST_OPTIONS];
    snprintf(what, sizeof what, "model %s", f->name);
    rows_of(f, o, rows);
    return choir__options_parse(text, what, rows);
}

static choir_status wrong(const choir__model_family *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static choir_status wrong(const choir__model_family *f, const char *format, ...)
{
    char why[400];
    va_list args;
    va_start(args, format);
    choir__number_vprint(why, sizeof why, format, args);
    va_end(args);
    return choir__error(CHOIR_ERR_ARGUMENT, "model %s: %s", f->name, why);
}

static choir_status take_size(const choir__model_family *f, struct options *o)
{
    char list[128] = "";
    for (const choir__family_size *s = f->sizes; s && s->name; s++) {
        if (!strcmp(s->name, o->size)) {
            o->sizes = s->sizes;
            o->sizes.traits = f->defaults.traits;
            o->sizes.pad = -1;
            return CHOIR_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
            s->name);
    }
    return wrong(f, "unknown size '%s': choose one of %s", o->size, *list ? list : "(none)");
}

/* --- rotary positions --- */

/* Reads "1.5/2/2.5", a divisor for each rate. */
static choir_status read_factors(const choir__model_family *f, const char *text,
    const char *key, double to[CHOIR__ROTARY_RATES], int64_t rates)
{
    char *list = choir__config_option(text, key), *rest = list, *one;
    int64_t count = 0;
    bool good = list && rates <= CHOIR__ROTARY_RATES;
    while (good && (one = strsep(&rest, "/"))) {
        good = count < rates && choir__parse_float(one, 1e-6, 1e9, &to[count]);
        count++;
    }
    free(list);
    if (good && count == rates)
        return CHOIR_OK;
    return wrong(f,
        "expected rope=longrope with %s= and as many numbers above 0 as a head has rates, "
        "%lld of at most %d, with slashes between them",
        key, (long long)rates, CHOIR__ROTARY_RATES);
}

static choir_status read_longrope(
    const choir__model_family *f, const char *text, struct options *o)
{
    choir__llama_sizes *s = &o->sizes;
    const int64_t rates = choir__llama_turning(s) / 2;
    choir_status status = read_factors(f, text, "short", s->short_factors, rates);
    if (status == CHOIR_OK)
        status = read_factors(f, text, "long", s->long_factors, rates);
    if (status == CHOIR_OK && s->rotary.original_context < 2)
        return wrong(f, "expected rope=longrope with original");
    return status;
}

/* Checks rope= and the options that depend on it. */
static choir_status check_rotary(
    const choir__model_family *f, const char *text, struct options *o)
{
    choir_rotary_opts *r = &o->sizes.rotary;
    for (size_t i = 0; *o->rope && i <= CHOIR_COUNT(scalings); i++) {
        if (i == CHOIR_COUNT(scalings))
            return wrong(f,
                "unknown rope '%s': choose one of plain, linear, llama3, dynamic, yarn, longrope",
                o->rope);
        if (!strcmp(scalings[i], o->rope)) {
            r->scaling = i;
            break;
        }
    }
    const bool factor = r->factor > 0, original = r->original_context > 0,
               bands = r->low_freq > 0 || r->high_freq > 0, lists = o->lists[0] || o->lists[1],
               fine = r->unrounded || r->attention_factor > 0;
    switch (r->scaling) {
    case CHOIR_ROTARY_PLAIN:
        if (factor || bands || original || lists || fine)
            return wrong(f,
                "factor, low_freq, high_freq, original, attention_factor, unrounded, short and "
                "long belong to other values of rope; rope is plain");
        return CHOIR_OK;
    case CHOIR_ROTARY_LINEAR:
        if (!factor || bands || original || lists || fine)
            return wrong(f, "expected rope=linear with factor, and with nothing else");
        return CHOIR_OK;
    case CHOIR_ROTARY_DYNAMIC:
        if (!factor || !original || bands || lists || fine ||
            choir__llama_turning(&o->sizes) < 4)
            return wrong(f, "expected rope=dynamic with factor and original, and with nothing "
                            "else, and heads of 4 dimensions or more");
        return CHOIR_OK;
    case CHOIR_ROTARY_LONGROPE: return read_longrope(f, text, o);
    case CHOIR_ROTARY_LLAMA3:
    case CHOIR_ROTARY_YARN: break;
    }
    if (!factor || !original || !(r->low_freq > 0) || !(r->high_freq > r->low_freq) || lists)
        return wrong(f,
            "expected rope=%s with factor, original, low_freq and a higher high_freq", o->rope);
    return CHOIR_OK;
}

/* --- sizes that belong together --- */

static choir_status check_heads(
    const choir__model_family *f, const choir__llama_sizes *s, bool given)
{
    if (!given && s->width % s->heads)
        return wrong(f, "heads=%lld does not divide width=%lld; give a head_dim",
            (long long)s->heads, (long long)s->width);
    if (s->heads % s->kv_heads)
        return wrong(f, "kv_heads=%lld does not divide heads=%lld", (long long)s->kv_heads,
            (long long)s->heads);
    if (s->head_dim % 2)
        return wrong(f,
            "expected heads of an even number of dimensions, as rotary positions turn pairs, got "
            "%lld",
            (long long)s->head_dim);
    if (choir__llama_turning(s) % 2 || choir__llama_turning(s) < 2)
        return wrong(f,
            "expected a part of each head of an even number of dimensions, as rotary positions "
            "turn pairs, got partial=%g of head_dim=%lld",
            s->partial, (long long)s->head_dim);
    return CHOIR_OK;
}

static choir_status check_pattern(const choir__model_family *f, const choir__llama_sizes *s)
{
    if (strspn(s->pattern, "fsnw") != strlen(s->pattern))
        return wrong(f,
            "pattern=%s: expected a letter for each kind of layer: f (sees all positions), s "
            "(has the window), n and w (likewise, without rotary positions)",
            s->pattern);
    if (!s->window && strpbrk(s->pattern, "sw"))
        return wrong(f, "pattern=%s: expected a window for its layers s and w", s->pattern);
    return f->check ? f->check(s) : CHOIR_OK;
}

static choir_status parse(const choir__model_family *f, const char *text, choir__llama_sizes *s)
{
    struct options o = {.sizes = f->defaults};
    choir_status status = parse_rows(f, text, &o); /* options beside size= override it */
    if (status == CHOIR_OK && *o.size && (status = take_size(f, &o)) == CHOIR_OK)
        status = parse_rows(f, text, &o);
    if (status != CHOIR_OK)
        return status;
    *s = o.sizes;
    if (!strcmp(s->pattern, "s") || (!strcmp(s->pattern, "f") && !s->window))
        *s->pattern = '\0'; /* all layers are the same */
    bool given = s->head_dim > 0;
    if (!s->kv_heads) /* half of them, if that is a whole number */
        s->kv_heads = s->heads % 2 ? s->heads : s->heads / 2;
    if (!given)
        s->head_dim = s->width / s->heads;
    if (!s->hidden) /* as many parameters as 4 C with two matrices, in multiples of 64 */
        s->hidden = (s->width * 8 / 3 + 63) / 64 * 64;
    if ((status = check_pattern(f, s)) != CHOIR_OK ||
        (status = check_heads(f, s, given)) != CHOIR_OK)
        return status;
    o.sizes = *s;
    status = check_rotary(f, text, &o);
    *s = o.sizes;
    return status;
}

/* --- sizes to text --- */

/* Appends a list of factors, each as the shortest number that is the same in f32. */
static void write_factors(char *to, size_t bytes, const char *key, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        char number[64];
        size_t used = strlen(to);
        choir__single_text((float)x[i], number);
        if (i)
            snprintf(to + used, bytes - used, "/%s", number);
        else
            snprintf(to + used, bytes - used, ",%s=%s", key, number);
    }
}

/* Appends the option unless it has no value. */
static void write_row(const choir__option *row, char *to, size_t bytes)
{
    char number[64];
    size_t used = strlen(to);
    const char *value = number;
    double x = row->low;
    if (row->type == CHOIR__FLAG)
        snprintf(number, sizeof number, "%d", *(const bool *)row->value);
    else if (row->type == CHOIR__INT)
        snprintf(number, sizeof number, "%lld",
            (long long)(x = (double)*(const int64_t *)row->value));
    else if (row->type == CHOIR__FLOAT)
        choir__number_text(x = *(const double *)row->value, number);
    else
        value = row->value;
    bool unset = row->type == CHOIR__FLAG && !strcmp(row->key, "unrounded") && *number == '0';
    if (*value && x >= row->low && !unset)
        snprintf(to + used, bytes - used, "%s%s=%s", to[used - 1] == ':' ? "" : ",", row->key,
            value);
}

/* Error: argument, a text that is too long. */
static choir_status write_text(
    const choir__model_family *f, const choir__llama_sizes *s, char *to, size_t bytes)
{
    struct options o = {.sizes = *s};
    choir__option rows[MOST_OPTIONS];
    if (!*s->pattern && *f->defaults.pattern) /* all layers are the same, unlike the family's */
        o.sizes.pattern[0] = choir__llama_kind(s, 0);
    if (s->rotary.scaling != CHOIR_ROTARY_PLAIN)
        snprintf(o.rope, sizeof o.rope, "%s", scalings[s->rotary.scaling]);
    rows_of(f, &o, rows);
    snprintf(to, bytes, "%s:", f->name);
    for (const choir__option *row = rows; row->key; row++) {
        bool list = row->type == CHOIR__STRING;
        if (list && s->rotary.scaling == CHOIR_ROTARY_LONGROPE)
            write_factors(to, bytes, row->key,
                row->value == &o.lists[0] ? s->short_factors : s->long_factors,
                choir__llama_turning(s) / 2);
        if (!list)
            write_row(row, to, bytes);
    }
    return strlen(to) + 1 < bytes
               ? CHOIR_OK
               : wrong(f, "its options are longer than the %zu bytes that are kept", bytes);
}

/* --- a model by name --- */

choir_status choir__family_describe(
    const choir__model_family *f, const char *text, choir_model_info *info)
{
    choir__llama_sizes s;
    choir_status status = parse(f, text, &s);
    if (status != CHOIR_OK)
        return status;
    status = choir__model_vocab(f->name, s.vocab, info->classes);
    if (status != CHOIR_OK)
        return status;
    if (s.vocab)
        info->classes = s.vocab;
    if (!info->classes)
        info->classes = 32000;
    s.vocab = info->classes;
    if (s.pad >= s.vocab)
        return wrong(f, "pad=%lld is no token of a vocabulary of %lld", (long long)s.pad,
            (long long)s.vocab);
    info->task = CHOIR_LANGUAGE;
    info->packs = true;
    info->input = choir_dims(s.context);
    info->items = s.context;
    return write_text(f, &s, info->config, sizeof info->config);
}

choir_module *choir__family_build(const choir__model_family *f, const char *text,
    choir_scope *run, const choir_model_info *info)
{
    choir__llama_sizes s;
    if (parse(f, text, &s) != CHOIR_OK)
        return NULL;
    s.vocab = info->classes;
    return choir__llama_new(run, &s);
}
