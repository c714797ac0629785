/* Prints a classifier's probabilities: classes in the order of their probability, as JSON or as
 * columns, per input or per word. Names and texts that are not ours are cleaned. */
#include "cli/predictions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "line/printed.h"
#include "line/say.h"

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

static void print_choice_json(const choir__predictions *p, const choice *c)
{
    char number[24];
    choir__cli_print_string("label", choir__saved_class(p->saved, c->class, number));
    printf(",\"class\":%lld,\"probability\":%.9g", (long long)c->class, c->probability);
}

/* Prints the members "label", "class", "probability" and, for more than one label, "top". */
static void print_choices_json(const choir__predictions *p, const float *probabilities)
{
    choice *list = ranked(probabilities, p->saved->info.classes);
    print_choice_json(p, &list[0]);
    if (p->top > 1)
        printf(",\"top\":[");
    for (int64_t i = 0; i < p->top && p->top > 1; i++) {
        printf("%s{", i ? "," : "");
        print_choice_json(p, &list[i]);
        printf("}");
    }
    if (p->top > 1)
        printf("]");
    free(list);
}

/* row: the word's row, or NULL. */
static void print_word_json(
    const choir__predictions *p, const char *word, const float *row, bool first)
{
    printf("%s{", first ? "" : ",");
    choir__cli_print_string("word", word);
    printf(",");
    if (row)
        print_choices_json(p, row);
    else
        printf("\"label\":null");
    printf("}");
}

/* --- for people --- */

static void print_choices(const choir__predictions *p, const float *probabilities)
{
    choice *list = ranked(probabilities, p->saved->info.classes);
    for (int64_t i = 0; i < p->top; i++) {
        printf("%s", i ? "  " : "");
        choir__saved_print_class(p->saved, list[i].class);
        printf("  %.4f", list[i].probability);
    }
    free(list);
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

static void print_words(choir__predictions *p, const choir_text *t, int64_t rows,
    const int64_t *targets, const float *probabilities)
{
    for (int64_t w = 0, r = 0; w < t->word_count; w++) {
        bool has = r < rows && targets[r] == w;
        const float *row = has ? probabilities + r++ * p->saved->info.classes : NULL;
        p->left_out += !has;
        if (p->json)
            print_word_json(p, t->words[w], row, w == 0);
        else
            print_word(p, t->words[w], row);
    }
}

static void print_input_json(const choir_text *t, const char *file)
{
    printf(",");
    choir__cli_print_string(t ? "text" : "file", t ? t->text : file);
    if (t && t->pair) {
        printf(",");
        choir__cli_print_string("pair", t->pair);
    }
    printf(",");
}

choir_status choir__predictions_print(
    void *arg, int64_t sample, int64_t rows, const int64_t *targets, const float *probabilities)
{
    choir__predictions *p = arg;
    const choir_text *t = p->texts ? &p->texts->text[sample] : NULL;
    const char *file = t ? NULL : choir_dataset_sample_name(p->data, sample);
    bool numbered = !t && !file;
    file = numbered ? p->folder : file;
    bool words = t && !t->text;
    if (p->json)
        printf("{\"event\":\"predict\",\"input\":%lld", (long long)sample);
    if (p->json && words) {
        printf(",\"words\":[");
        print_words(p, t, rows, targets, probabilities);
        printf("]");
    } else if (p->json) {
        print_input_json(t, file);
        print_choices_json(p, probabilities);
    } else if (words) {
        print_words(p, t, rows, targets, probabilities);
    } else {
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
    printf(p->json ? "}\n" : "\n");
    return CHOIR_OK;
}
