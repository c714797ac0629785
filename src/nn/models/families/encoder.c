/* Reads and writes the keys of BERT's relatives whose meaning depends on other keys:
 * padding, the head, and its targets. The architecture's name says which head a file has,
 * and the list of class names how many classes. */
#include "nn/models/families/encoder.h"

#include <stdlib.h>
#include <string.h>

#define ONE  "single_label_classification"
#define MANY "multi_label_classification"

/* Reads what a classifier of texts predicts. transformers takes a classifier of one class for a
 * regression unless the file says otherwise. */
static choir_status read_problem(choir__config *c, int64_t classes)
{
    const char *problem = json_string_value(json_object_get(c->root, "problem_type"));
    bool numbers = problem ? !strcmp(problem, "regression") : classes == 1;
    bool several = problem && !strcmp(problem, MANY);
    if (problem && !numbers && !several && strcmp(problem, ONE) != 0)
        return choir__config_bad(c, "problem_type", "expected regression, " ONE " or " MANY);
    if (numbers || several)
        choir__config_set(c, "problem", "%s", numbers ? "regression" : "multi_label");
    if (numbers || several || classes > 1)
        return CHOIR_OK;
    return choir__config_bad(c, "problem_type", "expected two classes or more, got one");
}

static choir_status read_classes(choir__config *c, bool words)
{
    int64_t classes;
    choir_status status = choir__config_read_classes(c, 1 + words, &classes);
    if (status != CHOIR_OK || !words)
        return status == CHOIR_OK ? read_problem(c, classes) : status;
    choir__config_set(c, "words", "1");
    return CHOIR_OK;
}

bool choir__encoder_tags(const choir__config *c, const choir__encoder_form *form)
{
    return !strcmp(choir__config_architecture(c), form->tagger);
}

choir_status choir__encoder_read(choir__config *c, const choir__encoder_form *form)
{
    int64_t width = choir__config_int(c, form->width, form->width_absent);
    int64_t heads = choir__config_int(c, form->heads, form->heads_absent);
    if (width % heads)
        return choir__config_bad(
            c, form->width, "expected a multiple of %s, %lld", form->heads, (long long)heads);
    if (json_is_true(json_object_get(c->root, "is_decoder")))
        return choir__config_bad(c, "is_decoder", "this model sees all positions");
    choir_status status =
        choir__config_read_pad(c, "vocab_size", form->vocab_absent, form->pad_absent);
    if (status != CHOIR_OK)
        return status;
    bool words = choir__encoder_tags(c, form);
    return words || !strcmp(choir__config_architecture(c), form->classifier)
               ? read_classes(c, words)
               : CHOIR_OK;
}

static void write_problem(const char *text, json_t *root)
{
    char *problem = choir__config_option(text, "problem");
    if (problem && !strcmp(problem, "regression"))
        json_object_set_new(root, "problem_type", json_string("regression"));
    if (problem && !strcmp(problem, "multi_label"))
        json_object_set_new(root, "problem_type", json_string(MANY));
    free(problem);
}

void choir__encoder_write(const char *text, json_t *root, const choir__encoder_form *form)
{
    choir__config_write_pad(text, root);
    char *classes = choir__config_option(text, "classes");
    char *words = choir__config_option(text, "words");
    int64_t count = classes ? strtoll(classes, NULL, 10) : 0;
    if (count) {
        json_object_set_new(
            root, "architectures", json_pack("[s]", words ? form->tagger : form->classifier));
        choir__config_set_classes(root, count, NULL);
        write_problem(text, root);
    }
    free(words);
    free(classes);
}
