/* The output of choir predict, as JSON or as columns: classes in the order of their
 * probability, or numbers. Names and texts that are not ours are cleaned. */
#include "cli/predicted.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/text.h"
#include "line/printed.h"

/* A class and its probability. */
typedef struct choice {
    int64_t class;
    double probability;
} choice;

/* Equal probabilities are ordered by class, as in choir_argmax. */
static int likelier_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability < y->probability ? 1 : -1;
    return (x->class > y->class) - (x->class < y->class);
}

/* Lists all classes, the likeliest first; the caller frees the list. */
static choice *ranked(const float *probabilities, int64_t classes)
{
    choice *list = choir__alloc((size_t)(classes + 1) * sizeof *list);
    for (int64_t c = 0; c < classes; c++)
        list[c] = (choice){c, (double)probabilities[c]};
    qsort(list, (size_t)classes, sizeof *list, likelier_first);
    return list;
}

/* --- JSON --- */

static void add_choice(choir__text_buffer *t, const choir__predictions *p, const choice *c)
{
    char number[24];
    choir__text_string(t, "label", choir__saved_class(p->saved, c->class, number));
    choir__text_value(t, "class", "%lld", (long long)c->class);
    choir__text_value(t, "probability", "%.9g", c->probability);
}

static void add_list(choir__text_buffer *t, const choir__predictions *p, const char *key,
    const choice *list, int64_t count)
{
    choir__text_open(t, key, '[');
    for (int64_t i = 0; i < count; i++) {
        choir__text_open(t, NULL, '{');
        add_choice(t, p, &list[i]);
        choir__text_close(t, '}');
    }
    choir__text_close(t, ']');
}

/* Returns how many of the classes, the likeliest first, a sample has that may have several. */
static int64_t had(const choice *list, int64_t classes)
{
    int64_t count = 0;
    while (count < classes && list[count].probability > 0.5)
        count++;
    return count;
}

/* Adds "label", "class" and "probability", where a sample may have several classes "labels",
 * and for more than one label "top". */
static void add_choices(
    choir__text_buffer *t, const choir__predictions *p, const float *probabilities)
{
    const choir_model_info *info = &p->saved->info;
    choice *list = ranked(probabilities, info->classes);
    if (info->task == CHOIR_MULTI_LABEL)
        add_list(t, p, "labels", list, had(list, info->classes));
    else
        add_choice(t, p, &list[0]);
    if (p->top > 1)
        add_list(t, p, "top", list, p->top);
    free(list);
}

/* Adds "number", or "numbers" where the model gives several numbers. */
static void add_values(choir__text_buffer *t, const choir__predictions *p, const float *values)
{
    int64_t count = p->saved->info.output.dim[0];
    if (count > 1)
        choir__text_open(t, "numbers", '[');
    for (int64_t i = 0; i < count; i++)
        choir__text_value(t, count > 1 ? NULL : "number", "%.9g", (double)values[i]);
    if (count > 1)
        choir__text_close(t, ']');
}

/* row: the word's row, or NULL. */
static void add_word(
    choir__text_buffer *t, const choir__predictions *p, const char *word, const float *row)
{
    choir__text_open(t, NULL, '{');
    choir__text_string(t, "word", word);
    if (row)
        add_choices(t, p, row);
    else
        choir__text_string(t, "label", NULL);
    choir__text_close(t, '}');
}

/* --- for people --- */

static void print_choices(const choir__predictions *p, const float *probabilities)
{
    const choir_model_info *info = &p->saved->info;
    choice *list = ranked(probabilities, info->classes);
    int64_t count = p->top > 1                        ? p->top
                    : info->task == CHOIR_MULTI_LABEL ? had(list, info->classes)
                                                      : 1;
    if (!count)
        printf("-");
    for (int64_t i = 0; i < count; i++) {
        printf("%s", i ? "  " : "");
        choir__saved_print_class(p->saved, list[i].class);
        printf("  %.4f", list[i].probability);
    }
    free(list);
}

static void print_values(const choir__predictions *p, const float *values)
{
    for (int64_t i = 0; i < p->saved->info.output.dim[0]; i++)
        printf("%s%.6g", i ? "  " : "", (double)values[i]);
}

static void print_word(const choir__predictions *p, const char *word, const float *row)
{
    choir__print_word(stdout, word, 0);
    printf("\t");
    if (row)
        print_choices(p, row);
    else
        printf("-");
    printf("\n");
}

/* --- a sample --- */

/* line: of JSON, or NULL for people. */
static void print_words(choir__text_buffer *line, choir__predictions *p, const choir_text *t,
    int64_t rows, const int64_t *targets, const float *probabilities)
{
    for (int64_t w = 0, r = 0; w < t->word_count; w++) {
        bool has = r < rows && targets[r] == w;
        const float *row = has ? probabilities + r++ * p->saved->info.classes : NULL;
        p->left_out += !has;
        if (line)
            add_word(line, p, t->words[w], row);
        else
            print_word(p, t->words[w], row);
    }
}

static void print_json(choir__predictions *p, int64_t sample, const choir_text *t,
    const char *file, int64_t rows, const int64_t *targets, const float *probabilities)
{
    choir__text_buffer line = {0};
    choir__text_open(&line, NULL, '{');
    choir__text_string(&line, "event", "predict");
    choir__text_value(&line, "input", "%lld", (long long)sample);
    if (t && !t->text) {
        choir__text_open(&line, "words", '[');
        print_words(&line, p, t, rows, targets, probabilities);
        choir__text_close(&line, ']');
    } else {
        choir__text_string(&line, t ? "text" : "file", t ? t->text : file);
        if (t && t->pair)
            choir__text_string(&line, "pair", t->pair);
        if (p->saved->info.task == CHOIR_REGRESSION)
            add_values(&line, p, probabilities);
        else
            add_choices(&line, p, probabilities);
    }
    choir__text_finish(&line, stdout);
}

choir_status choir__predicted_print(
    void *arg, int64_t sample, int64_t rows, const int64_t *targets, const float *probabilities)
{
    choir__predictions *p = arg;
    const choir_text *t = p->texts ? &p->texts->text[sample] : NULL;
    const char *file = t ? NULL : choir_dataset_sample_name(p->data, sample);
    bool numbered = !t && !file;
    file = numbered ? p->folder : file;
    if (p->json) {
        print_json(p, sample, t, file, rows, targets, probabilities);
        return CHOIR_OK;
    }
    if (t && !t->text) {
        print_words(NULL, p, t, rows, targets, probabilities);
    } else {
        if (p->saved->info.task == CHOIR_REGRESSION)
            print_values(p, probabilities);
        else
            print_choices(p, probabilities);
        printf("  ");
        choir__print_word(stdout, t ? t->text : file, 0);
        if (t && t->pair) {
            printf("\t");
            choir__print_word(stdout, t->pair, 0);
        }
        if (numbered)
            printf(" %lld", (long long)sample);
    }
    printf("\n");
    return CHOIR_OK;
}
