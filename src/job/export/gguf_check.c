/* Checks that a GGUF file describes the model that it was made of. It is read back like any
 * other, and the options of the two models are compared: a setting that has no key there, or a
 * fixed value in llama.cpp, is refused by name instead of lost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "base/number.h"
#include "job/export/gguf_check.h"
#include "nn/models/config.h"
#include "nn/models/families/family.h"

/* Returns whether two values are equal, numbers up to the f32 that a file has. */
static bool alike(const char *a, const char *b)
{
    char *end_a, *end_b;
    if (!a || !b)
        return a == b;
    double x = choir__number_read(a, &end_a), y = choir__number_read(b, &end_b);
    if (*end_a || *end_b || end_a == a || end_b == b)
        return !strcmp(a, b);
    return fabs(x - y) <= 1e-6 * fabs(x);
}

/* The options that need not be equal, in "NAME " each: they say nothing about what a trained
 * model computes for a text that the file takes. */
static const char *const free_options = " dropout pad ",
                         *const without_window = " dropout pad window pattern context ";

typedef struct comparison {
    const char *ours, *theirs; /* full texts of the models */
    const char *free;
    char *list; /* what differs */
} comparison;

/* YaRN's factor of attention is the usual one if a file names none. */
static bool is_usual_factor(const comparison *c, const char *option, const char *value)
{
    char *factor = choir__config_option(c->ours, "factor"), usual[CHOIR__NUMBER_TEXT] = "";
    if (factor && !strcmp(option, "attention_factor") && strstr(c->ours, "rope=yarn"))
        choir__single_text(
            (float)(0.1 * choir__log(choir__number_read(factor, NULL)) + 1), usual);
    free(factor);
    return *usual && alike(value, usual);
}

/* Kinds of layers repeat, so that several texts describe the same layers. */
static bool is_same_pattern(
    const comparison *c, const char *option, const char *a, const char *b)
{
    if (strcmp(option, "pattern") != 0 || !*a || !b || !*b)
        return false;
    const size_t layers = (size_t)choir__family_number(c->ours, "layers"), each_a = strlen(a),
                 each_b = strlen(b);
    size_t i = 0;
    while (i < layers && a[i % each_a] == b[i % each_b])
        i++;
    return i == layers;
}

static void compare_option(comparison *c, const char *option, const char *value)
{
    char *there = choir__config_option(c->theirs, option),
         *word = choir__format(" %s ", option);
    if (!strstr(c->free, word) && !alike(value, there) && !is_usual_factor(c, option, value) &&
        !is_same_pattern(c, option, value, there)) {
        char *one = choir__format("%s=%s", option, value);
        choir__config_append(&c->list, ", ", one);
        free(one);
    }
    free(word);
    free(there);
}

/* Compares each option of the model; the file has no others, as it is read with defaults. */
static void compare(comparison *c)
{
    char *copy = choir__strdup(c->ours + strcspn(c->ours, ":")), *rest = copy, *pair;
    rest += *rest == ':';
    while ((pair = strsep(&rest, ","))) {
        char *value = strchr(pair, '=');
        if (value) {
            *value++ = '\0';
            compare_option(c, pair, value);
        }
    }
    free(copy);
}

choir_status choir__gguf_check_model(
    const char *path, const char *from, const char *model, bool window_lost)
{
    char *text = NULL, *notes = NULL;
    choir_model_info info = {0};
    comparison c = {.ours = model,
        .theirs = info.config,
        .free = window_lost ? without_window : free_options,
        .list = choir__strdup("")};
    choir_status status = choir_model_read_config(path, &text, &notes);
    if (status == CHOIR_OK)
        status = choir_model_describe(text, &info);
    if (status == CHOIR_OK)
        compare(&c);
    if (status == CHOIR_ERR_UNSUPPORTED || status == CHOIR_ERR_FORMAT) {
        const char *why = choir__message(), *what = strstr(why, ": ");
        char *said = choir__strdup(what ? what + 2 : why);
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: a GGUF file of such a model is not read again: %s", from, said);
        free(said);
    }
    if (status == CHOIR_OK && *c.list)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "%s: a GGUF file has no place for %s of such a model", from, c.list);
    free(c.list);
    free(notes);
    free(text);
    return status;
}
