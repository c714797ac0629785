/* Optuna's JSON of distributions, both ways:
 *
 *     {"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0, "high": 1.0,
 *         "log": false}}
 *     {"name": "IntDistribution", "attributes": {"log": false, "step": 1, "low": 1, "high": 8}}
 *     {"name": "CategoricalDistribution", "attributes": {"choices": ["sgd", 0.5, true]}}
 *
 * Optuna's can be what no space is written as: choices such as 1 and "1", numbers with a step
 * of 0.1, any text. */
#include "tune/storage/distribution.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/python_json.h"

static json_t *number(double x)
{
    bool whole = x == floor(x) && fabs(x) < 0x1p53;
    return whole ? json_integer((json_int_t)x) : json_real(x);
}

json_t *choir__choice_json(const choir__choice *c)
{
    if (c->json)
        return json_loads(c->json, JSON_DECODE_ANY, NULL);
    return c->is_number ? number(c->number) : json_stringn_nocheck(c->text, strlen(c->text));
}

static json_t *choices_json(const choir__dist *d)
{
    json_t *list = json_array();
    for (int i = 0; i < d->choice_count; i++)
        json_array_append_new(list, choir__choice_json(&d->choices[i]));
    return json_pack("{s:o}", "choices", list);
}

char *choir__dist_json(const choir__dist *d)
{
    const char *name = "FloatDistribution";
    json_t *about;
    if (d->kind == CHOIR__CHOICE) {
        name = "CategoricalDistribution";
        about = choices_json(d);
    } else if (d->kind == CHOIR__INTEGER) {
        name = "IntDistribution";
        about = json_pack("{s:b, s:o, s:o, s:o}", "log", d->log, "step", number(d->step), "low",
            number(d->low), "high", number(d->high));
    } else {
        bool normal = d->kind == CHOIR__NORMAL;
        about = json_pack("{s:n, s:f, s:f, s:b}", "step", "low",
            normal ? d->low - 9 * d->high : d->low, "high",
            normal ? d->low + 9 * d->high : d->high, "log", d->kind == CHOIR__LOG);
    }
    json_t *whole = json_pack("{s:s, s:o}", "name", name, "attributes", about);
    char *text = json_dumps(whole, 0);
    json_decref(whole);
    return text;
}

/* --- reading --- */

typedef enum family { NONE, REAL, INTEGER, CHOICE } family;

typedef struct stored {
    json_t *root;
    const json_t *about;
    family family;
    double low, high, step; /* step; 0: real numbers without a step */
    bool log;
} stored;

/* Reads JSON, also of Optuna's older classes; false: it is no distribution. */
static bool read(const char *json, stored *s)
{
    static const struct {
        const char *name;
        family family;
        bool log;
    } classes[] = {
        {"FloatDistribution", REAL, false},
        {"UniformDistribution", REAL, false},
        {"LogUniformDistribution", REAL, true},
        {"DiscreteUniformDistribution", REAL, false}, /* the step's key is "q" */
        {"IntDistribution", INTEGER, false},
        {"IntUniformDistribution", INTEGER, false},
        {"IntLogUniformDistribution", INTEGER, true},
        {"CategoricalDistribution", CHOICE, false},
    };
    *s = (stored){.root = choir__python_json(json, false)};
    const char *name = json_string_value(json_object_get(s->root, "name"));
    s->about = json_object_get(s->root, "attributes");
    for (size_t i = 0; name && i < CHOIR_COUNT(classes); i++)
        if (!strcmp(classes[i].name, name))
            s->family = classes[i].family, s->log = classes[i].log;
    s->low = json_number_value(json_object_get(s->about, "low"));
    s->high = json_number_value(json_object_get(s->about, "high"));
    s->log = s->log || json_is_true(json_object_get(s->about, "log"));
    const json_t *step = json_object_get(s->about, "step");
    if (!step)
        step = json_object_get(s->about, "q");
    s->step = json_is_number(step) ? json_number_value(step) : s->family == INTEGER;
    return s->family != NONE;
}

/* Returns a choice as people write it, on the heap. */
static char *choice_text(const json_t *c)
{
    if (json_is_string(c))
        return choir__strdup(json_string_value(c));
    if (json_is_boolean(c))
        return choir__strdup(json_is_true(c) ? "True" : "False");
    if (json_is_integer(c))
        return choir__format("%lld", (long long)json_integer_value(c));
    if (json_is_real(c))
        return choir__format("%.17g", json_real_value(c));
    return json_is_null(c) ? choir__strdup("None") : json_dumps(c, 0); /* a list or an object */
}

/* Texts are quoted. */
static char *choices_text(const json_t *choices)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *one = json_array_get(choices, i);
        char *word = choice_text(one);
        const char *quote = !json_is_string(one) ? "" : strchr(word, '\'') ? "\"" : "'";
        fprintf(out, "%s%s%s%s", i ? ", " : "choice(", quote, word, quote);
        free(word);
    }
    fputs(json_array_size(choices) ? ")" : "", out);
    fclose(out);
    return text;
}

char *choir__dist_text_of_json(const char *json)
{
    stored s;
    char *text = NULL;
    if (!read(json, &s))
        text = NULL;
    else if (s.family == CHOICE)
        text = choices_text(json_object_get(s.about, "choices"));
    else if (s.family == REAL)
        text = choir__format("%s(%.17g, %.17g)", s.log ? "log" : "uniform", s.low, s.high);
    else if (s.log)
        text = choir__format("int(%.0f, %.0f, log)", s.low, s.high);
    else
        text = choir__format("int(%.0f, %.0f, step=%.0f)", s.low, s.high, s.step);
    json_decref(s.root);
    return text;
}

/* --- as distributions --- */

static void take_choices(const json_t *choices, choir__dist *d)
{
    d->choices = choir__calloc(json_array_size(choices) + 1, sizeof *d->choices);
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *one = json_array_get(choices, i);
        d->choices[d->choice_count++] = (choir__choice){.text = choice_text(one),
            .is_number = json_is_number(one),
            .number = json_number_value(one)};
    }
}

/* Returns whether the numbers form a valid distribution. */
static bool has_range(const stored *s)
{
    bool whole = s->family != INTEGER || (s->low == floor(s->low) && s->step >= 1);
    return isfinite(s->low) && isfinite(s->high) && s->low <= s->high && whole &&
           isfinite(s->step) && s->step >= 0 && (!s->log || s->low > 0);
}

choir_status choir__dist_of_json(const char *name, const char *json, choir__dist *d)
{
    stored s;
    bool good = read(json, &s);
    *d = (choir__dist){.kind = CHOIR__CHOICE};
    if (good && s.family == CHOICE) {
        take_choices(json_object_get(s.about, "choices"), d);
    } else if (good && has_range(&s)) {
        d->kind = s.family == INTEGER ? CHOIR__INTEGER : s.log ? CHOIR__LOG : CHOIR__UNIFORM;
        d->low = s.low, d->high = s.high, d->step = s.log && s.family == REAL ? 0 : s.step;
        d->log = s.log && s.family == INTEGER;
        if (s.family == INTEGER)
            d->high = d->low + d->step * floor((d->high - d->low) / d->step);
    }
    good = good && (d->kind != CHOIR__CHOICE || d->choice_count);
    json_decref(s.root);
    if (good)
        return CHOIR_OK;
    choir__dist_free(d);
    return choir__error(CHOIR_ERR_FORMAT,
        "parameter %s: expected one of Optuna's distributions, got '%s'", name, json);
}

/* --- values --- */

static bool same_choice(const choir__choice *c, const json_t *there)
{
    if (c->is_number && json_is_number(there))
        return c->number == json_number_value(there);
    char *text = choice_text(there);
    bool same = !json_is_number(there) && !strcmp(text, c->text);
    free(text);
    return same;
}

choir_status choir__dist_take_json(
    const choir__dist *d, const char *name, const json_t *json, double *value)
{
    for (int i = 0; i < d->choice_count; i++)
        if (same_choice(&d->choices[i], json)) {
            *value = i;
            return CHOIR_OK;
        }
    char *text = choice_text(json);
    choir_status status = choir__dist_read(d, name, text, value);
    free(text);
    return status;
}

static bool same(const choir__dist *d, const stored *s)
{
    const json_t *choices = json_object_get(s->about, "choices");
    if (d->kind == CHOIR__CHOICE) {
        bool all = s->family == CHOICE && json_array_size(choices) == (size_t)d->choice_count;
        for (int i = 0; i < d->choice_count && all; i++)
            all = same_choice(&d->choices[i], json_array_get(choices, (size_t)i));
        return all;
    }
    if (d->kind == CHOIR__INTEGER)
        return s->family == INTEGER && s->log == d->log;
    return s->family == REAL && s->log == (d->kind == CHOIR__LOG);
}

/* Returns whether a value that is neither a text nor a number may be written as this word. */
static bool may_be_value(const choir__choice *c)
{
    static const char *const words[] = {"True", "False", "None"};
    for (size_t i = 0; i < CHOIR_COUNT(words); i++)
        if (!strcmp(c->text, words[i]))
            return true;
    return *c->text == '[' || *c->text == '{';
}

bool choir__dist_learn(choir__dist *d, const char *json)
{
    bool open = false, learned = false;
    for (int i = 0; i < d->choice_count; i++)
        open = open || (!d->choices[i].json && may_be_value(&d->choices[i]));
    if (!open)
        return false;
    stored s;
    bool good = read(json, &s) && same(d, &s);
    for (int i = 0; i < d->choice_count && good; i++) {
        const json_t *there = json_array_get(json_object_get(s.about, "choices"), (size_t)i);
        if (d->choices[i].json || json_is_string(there) || json_is_number(there))
            continue;
        d->choices[i].json = json_dumps(there, JSON_ENCODE_ANY);
        learned = true;
    }
    json_decref(s.root);
    return learned;
}

static bool holds(const choir__dist *d, double x)
{
    if (d->kind == CHOIR__CHOICE)
        return x >= 0 && x < d->choice_count && x == floor(x);
    if (d->kind == CHOIR__INTEGER && fmod(x - d->low, d->step) != 0)
        return false;
    return d->kind == CHOIR__NORMAL ? isfinite(x) : x >= d->low && x <= d->high;
}

choir_status choir__dist_value_of_json(
    const choir__dist *d, const char *name, const char *json, double internal, double *value)
{
    stored s;
    bool good = read(json, &s) && same(d, &s) && holds(d, internal);
    char *text = good ? NULL : choir__dist_text_of_json(json);
    if (good)
        *value = internal;
    else if (d->kind == CHOIR__CHOICE && holds(d, internal))
        choir__error(CHOIR_ERR_ARGUMENT,
            "parameter %s: expected the space's choices, in its order; the study has it as %s",
            name, text ? text : json);
    else
        choir__error(CHOIR_ERR_ARGUMENT,
            "parameter %s: the study has it as %s, with the value %g, which is not the space's",
            name, text ? text : json, internal);
    free(text);
    json_decref(s.root);
    return good ? CHOIR_OK : CHOIR_ERR_ARGUMENT;
}
