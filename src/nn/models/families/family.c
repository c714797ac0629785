/* The published forms of all families share heads, rotary positions and kinds of layers. */
#include "nn/models/families/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/number.h"

/* --- reading --- */

static choir_status read_heads(choir__config *c, const choir__model_family *f)
{
    int64_t heads = choir__config_int(c, "num_attention_heads", f->absent.heads);
    int64_t kv = choir__config_int(c, "num_key_value_heads", 0);
    int64_t width = choir__config_int(c, "hidden_size", f->absent.width);
    const json_t *given = json_object_get(c->root, "num_key_value_heads");
    if (!given) /* absent and null differ */
        choir__config_set(c, "kv_heads", "%lld",
            (long long)(f->absent.kv_heads ? f->absent.kv_heads : heads));
    if (json_is_null(given))
        choir__config_set(c, "kv_heads", "%lld", (long long)heads);
    if (kv && heads % kv)
        return choir__config_bad(c, "num_key_value_heads",
            "expected a divisor of num_attention_heads, %lld", (long long)heads);
    if (!f->defaults.head_dim && !choir__config_int(c, "head_dim", 0) && width % heads)
        return choir__config_bad(c, "hidden_size",
            "expected a multiple of num_attention_heads, %lld, as head_dim is missing",
            (long long)heads);
    return CHOIR_OK;
}

/* --- rotary positions --- */

typedef struct rope_reader {
    choir__config *c;
    const char *where;
    const json_t *rope;
    int64_t context; /* the model's */
    choir_status status;
} rope_reader;

/* Reads a number above 0 to an option. other: its value if the file lacks it; 0: it must not.
 */
static void read_number(rope_reader *r, const char *key, const char *option, double other)
{
    const json_t *value = json_object_get(r->rope, key);
    bool absent = !value || json_is_null(value);
    if (r->status != CHOIR_OK || (absent && other < 0))
        return;
    double x = absent ? other : json_number_value(value);
    if ((!absent && !json_is_number(value)) || !(x > 0)) {
        r->status =
            choir__config_bad(r->c, r->where, "expected a number above 0 as its '%s'", key);
        return;
    }
    if (json_is_integer(value))
        choir__config_set(r->c, option, "%lld", (long long)json_integer_value(value));
    else
        choir__config_set(r->c, option, "%.17g", x);
}

/* Reads the context of pre-training, which some files have beside the object. */
static double read_original(rope_reader *r)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *within = r->rope;
    if (json_is_number(json_object_get(r->c->root, key)))
        r->rope = r->c->root;
    const json_t *given = json_object_get(r->rope, key);
    read_number(r, key, "original", (double)r->context);
    r->rope = within;
    return json_is_number(given) ? json_number_value(given) : (double)r->context;
}

/* Reads "short_factor" or "long_factor" as "1/1.5/2". */
static void read_factors(rope_reader *r, const char *key, const char *option)
{
    const json_t *list = json_object_get(r->rope, key), *one;
    size_t i;
    bool good = json_array_size(list) > 0;
    char *text = choir__strdup("");
    json_array_foreach(list, i, one)
    {
        char number[CHOIR__NUMBER_TEXT];
        good &= json_is_number(one) && json_number_value(one) > 0;
        choir__single_text((float)json_number_value(one), number);
        choir__config_append(&text, "/", number);
    }
    char *pair = choir__format("%s=%s", option, text);
    if (good)
        choir__config_append(&r->c->text, ",", pair);
    else if (r->status == CHOIR_OK)
        r->status = choir__config_bad(
            r->c, r->where, "expected a list of numbers above 0 as its '%s'", key);
    free(pair);
    free(text);
}

/* The stretch: the ratio of both contexts if the file does not say. */
static void read_stretch(rope_reader *r, double original)
{
    read_number(r, "factor", "factor", original > 0 ? (double)r->context / original : 0);
}

/* Attention's factor; some files have its terms instead. */
static void read_attention_factor(rope_reader *r)
{
    double mscale = json_number_value(json_object_get(r->rope, "mscale")),
           all = json_number_value(json_object_get(r->rope, "mscale_all_dim"));
    const json_t *given = json_object_get(r->rope, "attention_factor");
    double factor = json_number_value(json_object_get(r->rope, "factor"));
    if ((given && !json_is_null(given)) || mscale == 0 || all == 0 || !(factor > 1)) {
        read_number(r, "attention_factor", "attention_factor", -1);
        return;
    }
    double log = choir__log(factor);
    choir__config_set(
        r->c, "attention_factor", "%.17g", (0.1 * mscale * log + 1) / (0.1 * all * log + 1));
}

static void read_llama3(rope_reader *r)
{
    read_number(r, "factor", "factor", 0);
    read_number(r, "low_freq_factor", "low_freq", 0);
    read_number(r, "high_freq_factor", "high_freq", 0);
    read_original(r);
}

static void read_yarn(rope_reader *r)
{
    read_stretch(r, read_original(r));
    read_number(r, "beta_slow", "low_freq", 1);
    read_number(r, "beta_fast", "high_freq", 32);
    read_attention_factor(r);
    if (json_is_false(json_object_get(r->rope, "truncate")))
        choir__config_set(r->c, "unrounded", "1");
}

static void read_longrope(rope_reader *r)
{
    read_stretch(r, read_original(r));
    read_number(r, "attention_factor", "attention_factor", -1);
    read_factors(r, "short_factor", "short");
    read_factors(r, "long_factor", "long");
}

static void read_linear(rope_reader *r)
{
    read_number(r, "factor", "factor", 0);
}

/* The model's own context is the one before the stretch. */
static void read_dynamic(rope_reader *r)
{
    read_number(r, "factor", "factor", 0);
    choir__config_set(r->c, "original", "%lld", (long long)r->context);
}

#define KEYS(...)                                                                              \
    (const char *const[])                                                                      \
    {                                                                                          \
        __VA_ARGS__, NULL                                                                      \
    }

static const char *const every_type[] = {"rope_type", "type", "rope_theta",
    "partial_rotary_factor", "original_max_position_embeddings", NULL};

static const struct {
    const char *name;
    void (*read)(rope_reader *r);
    const char *const *keys; /* beside the keys of every type; may be NULL */
} rope_types[] = {{"default", NULL, NULL}, {"linear", read_linear, KEYS("factor")},
    {"dynamic", read_dynamic, KEYS("factor")},
    {"yarn", read_yarn,
        KEYS("factor", "beta_slow", "beta_fast", "attention_factor", "mscale", "mscale_all_dim",
            "truncate")},
    {"longrope", read_longrope,
        KEYS("factor", "attention_factor", "short_factor", "long_factor")},
    {"llama3", read_llama3, KEYS("factor", "low_freq_factor", "high_freq_factor")}};

static void note_unknown(const rope_reader *r, const char *type, const char *const *keys)
{
    const char *key;
    json_t *value;
    char *unknown = choir__strdup("");
    json_object_foreach((json_t *)r->rope, key, value)
    {
        if (!choir__config_among(every_type, key) && !choir__config_among(keys, key))
            choir__config_append(&unknown, ", ", key);
    }
    if (*unknown)
        choir__config_note(r->c, "%s: not known and ignored in %s of rope_type '%s': %s",
            r->c->path, r->where, type, unknown);
    free(unknown);
}

choir_status choir__family_read_rope(
    choir__config *c, const choir__model_family *f, const char *where, const json_t *rope)
{
    const int64_t context = choir__config_int(c, "max_position_embeddings", f->absent.context);
    rope_reader r = {c, where, rope, context, CHOIR_OK};
    const json_t *named = json_object_get(rope, "rope_type");
    if (!named)
        named = json_object_get(rope, "type");
    const char *type = named ? json_string_value(named) : "default";
    for (size_t i = 0; f->longropes && type && i < 2; i++) /* older names of longrope */
        if (!strcmp(type, f->longropes[i]))
            type = "longrope";
    const json_t *part = json_object_get(rope, "partial_rotary_factor");
    read_number(&r, "rope_theta", "theta", -1);
    if (json_is_number(part) && json_number_value(part) != 1)
        read_number(&r, "partial_rotary_factor", "partial", -1);
    for (size_t i = 0; type && i < CHOIR_COUNT(rope_types); i++) {
        if (strcmp(rope_types[i].name, type) != 0)
            continue;
        if (rope_types[i].read) {
            choir__config_set(c, "rope", "%s", type);
            rope_types[i].read(&r);
        }
        note_unknown(&r, type, rope_types[i].keys);
        return r.status;
    }
    return choir__config_bad(c, where,
        "unknown rope_type: choose one of default, linear, dynamic, yarn, longrope, llama3");
}

/* Reads "rope_scaling", or "rope_parameters" as it is called since it includes theta. With
 * both, transformers takes the first as a whole (`rope_scaling or rope_parameters`), and theta
 * beside it. */
static choir_status read_rope(choir__config *c, const choir__model_family *f)
{
    const json_t *scaling = json_object_get(c->root, "rope_scaling");
    const json_t *parameters = json_object_get(c->root, "rope_parameters");
    bool both = json_object_size(scaling) && json_object_size(parameters);
    const char *where = "rope_scaling";
    if (json_is_null(scaling) || (json_is_object(scaling) && !json_object_size(scaling)))
        scaling = NULL;
    if (!scaling)
        where = "rope_parameters";
    const json_t *rope = scaling ? scaling : parameters;
    if (!rope || json_is_null(rope))
        return CHOIR_OK;
    if (!json_is_object(rope))
        return choir__config_bad(c, where, "expected an object {...}");
    if (both && !json_equal(scaling, parameters))
        choir__config_note(c,
            "%s: key 'rope_parameters' has no effect, as 'rope_scaling' is there as well",
            c->path);
    return choir__family_read_rope(c, f, where, rope);
}

choir_status choir__family_read(choir__config *c, const choir__model_family *f)
{
    choir_status status = read_heads(c, f);
    if (status == CHOIR_OK)
        status = choir__config_read_pad(c, "vocab_size", f->absent.vocab, f->absent.pad);
    return status == CHOIR_OK ? read_rope(c, f) : status;
}

/* --- kinds of layers --- */

int64_t choir__family_layers(const choir__config *c, int64_t absent)
{
    int64_t layers = choir__config_int(c, "num_hidden_layers", absent);
    return choir__max(1, choir__min(layers, CHOIR__LLAMA_LAYERS));
}

/* Shortens the kinds to what repeats. */
static void shorten(char *kinds, int64_t layers)
{
    int64_t period = 1;
    for (; period < layers; period++) {
        int64_t i = period;
        while (i < layers && kinds[i] == kinds[i - period])
            i++;
        if (i == layers)
            break;
    }
    kinds[period] = '\0';
}

choir_status choir__family_read_kinds(choir__config *c, char *kinds, int64_t layers)
{
    static const char key[] = "layer_types";
    const json_t *list = json_object_get(c->root, key), *one;
    size_t i;
    if (list && !json_is_null(list) && (int64_t)json_array_size(list) != layers)
        return choir__config_bad(
            c, key, "expected a list of num_hidden_layers, %lld, names", (long long)layers);
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(one);
        bool turns = kinds[i] == 'f' || kinds[i] == 's';
        if (name && !strcmp(name, "full_attention"))
            kinds[i] = turns ? 'f' : 'n';
        else if (name && !strcmp(name, "sliding_attention"))
            kinds[i] = turns ? 's' : 'w';
        else
            return choir__config_bad(c, key,
                "expected \"full_attention\" or \"sliding_attention\" for each layer, as no "
                "other kind is built");
    }
    kinds[layers] = '\0';
    bool window = strpbrk(kinds, "sw");
    shorten(kinds, layers);
    if (!window)
        choir__config_set(c, "window", "0");
    else if (choir__config_int(c, "sliding_window", 0) < 1 &&
             json_object_get(c->root, "sliding_window"))
        return choir__config_bad(
            c, "sliding_window", "expected 1 or more, for the layers that have it");
    char *pair = choir__format("pattern=%s", kinds);
    choir__config_append(&c->text, ",", pair);
    free(pair);
    return CHOIR_OK;
}

/* --- writing --- */

int64_t choir__family_number(const char *text, const char *option)
{
    char *value = choir__config_option(text, option);
    int64_t number = value ? strtoll(value, NULL, 10) : 0;
    free(value);
    return number;
}

static json_t *factors_json(const char *list)
{
    json_t *array = json_array();
    char *copy = choir__strdup(list), *rest = copy, *one;
    while ((one = strsep(&rest, "/")))
        json_array_append_new(array, json_real(choir__number_read(one, NULL)));
    free(copy);
    return array;
}

/* Adds the options of rotary positions to their object. */
static void write_rope_options(const char *text, json_t *rope, bool yarn)
{
    const char *const names[][2] = {{"factor", "factor"},
        {"low_freq", yarn ? "beta_slow" : "low_freq_factor"},
        {"high_freq", yarn ? "beta_fast" : "high_freq_factor"},
        {"attention_factor", "attention_factor"}, {"short", "short_factor"},
        {"long", "long_factor"}};
    for (size_t i = 0; i < CHOIR_COUNT(names); i++) {
        char *value = choir__config_option(text, names[i][0]);
        if (value)
            json_object_set_new(rope, names[i][1],
                i < 4 ? json_real(choir__number_read(value, NULL)) : factors_json(value));
        free(value);
    }
    if (choir__family_number(text, "unrounded"))
        json_object_set_new(rope, "truncate", json_false());
}

static void write_rope(const char *text, json_t *root)
{
    char *type = choir__config_option(text, "rope");
    const int64_t original = choir__family_number(text, "original");
    json_t *rope = type ? json_pack("{s:s}", "rope_type", type) : json_null();
    if (type) {
        write_rope_options(text, rope, !strcmp(type, "yarn"));
        if (!strcmp(type, "dynamic"))
            json_object_set_new(root, "max_position_embeddings", json_integer(original));
        else if (original)
            json_object_set_new(
                rope, "original_max_position_embeddings", json_integer(original));
    }
    json_object_set_new(root, "rope_scaling", rope);
    free(type);
}

void choir__family_write(const char *text, json_t *root)
{
    write_rope(text, root);
    choir__config_write_pad(text, root);
}

void choir__family_write_kinds(const char *text, json_t *root)
{
    char *pattern = choir__config_option(text, "pattern");
    const int64_t layers = choir__family_number(text, "layers"),
                  window = choir__family_number(text, "window");
    const char *kinds = pattern ? pattern : window ? "s" : "f";
    json_t *list = json_array();
    for (int64_t i = 0; i < layers; i++) {
        char kind = kinds[i % (int64_t)strlen(kinds)];
        bool slides = kind == 's' || kind == 'w';
        json_array_append_new(
            list, json_string(slides ? "sliding_attention" : "full_attention"));
    }
    json_object_set_new(root, "layer_types", list);
    if (!window)
        json_object_set_new(root, "sliding_window", json_null());
    free(pattern);
}
