/* Reads and stores the targets of texts for regression and for several classes per text:
 * numbers in one array, or lists of labels in another. A label becomes a class when its
 * sample is read, because classes are known only after the whole training split. */
#include "data/targets.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/options.h"

static void add_used(choir__targets *t)
{
    if (t->several)
        CHOIR__GROW(t->label, t->used);
    else
        CHOIR__GROW(t->number, t->used);
    t->used++;
}

/* --- numbers --- */

/* Fields of a table are strings. */
static bool read_number(const choir__json *value, double *number)
{
    if (value->type == CHOIR__JSON_STRING)
        return choir__parse_float(value->text, -(double)INFINITY, (double)INFINITY, number) &&
               isfinite((float)*number);
    *number = choir__json_real(value);
    return (value->type == CHOIR__JSON_INTEGER || value->type == CHOIR__JSON_REAL) &&
           isfinite((float)*number);
}

static choir_status add_numbers(
    choir__targets *t, const choir__data_record_at *at, const choir__json *value, bool keep)
{
    const bool list = value->type == CHOIR__JSON_ARRAY;
    const choir__json *entry = list ? choir__json_first(value) : value;
    int64_t count = list ? value->count : 1;
    if (count != t->outputs)
        return choir__data_record_wrong(at,
            "expected a label of %lld numbers, as the model gives, got %lld",
            (long long)t->outputs, (long long)count);
    for (int64_t i = 0; i < count; i++, entry = i < count ? choir__json_next(entry) : NULL) {
        double number;
        if (!read_number(entry, &number))
            return choir__data_record_wrong(at, "expected a label that is a number");
        if (!keep)
            continue;
        add_used(t);
        t->number[t->used - 1] = (float)number;
    }
    t->count += keep;
    return CHOIR_OK;
}

/* --- classes --- */

static bool is_truth(const choir__json *value)
{
    if (value->type == CHOIR__JSON_REAL)
        return choir__json_real(value) == 0 || choir__json_real(value) == 1;
    return value->type == CHOIR__JSON_TRUE || value->type == CHOIR__JSON_FALSE;
}

static bool is_true(const choir__json *value)
{
    return value->type == CHOIR__JSON_TRUE ||
           (value->type == CHOIR__JSON_REAL && choir__json_real(value) == 1);
}

/* Returns whether an array has a truth value for each class. */
static bool are_truths(const choir__targets *t, const choir__json *list)
{
    const choir__json *entry = choir__json_first(list);
    for (uint32_t i = 0; i < list->count; i++, entry = choir__json_next(entry))
        if (!is_truth(entry))
            return false;
    return list->count && (int64_t)list->count == t->outputs;
}

/* Stores the label of a class by its number. Names that a model gives are the first labels. */
static choir_status label_of_class(
    choir__labels *labels, const choir__data_record_at *at, int64_t class, int64_t *label)
{
    char text[24];
    int bytes = snprintf(text, sizeof text, "%lld", (long long)class);
    *label = class;
    return class < labels->given
               ? CHOIR_OK
               : choir__labels_add(labels, at,
                     &(choir__json){CHOIR__JSON_STRING, 0, 1, text, (size_t)bytes}, label);
}

static void add_label(choir__targets *t, int64_t label, bool keep)
{
    if (!keep)
        return;
    add_used(t);
    t->label[t->used - 1] = label;
}

/* Returns an error if whole numbers of a list name a class twice: they are truth values then,
 * which are read as the classes 0 and 1 otherwise. */
static choir_status check_once(
    const choir__targets *t, const choir__data_record_at *at, const choir__json *list)
{
    const choir__json *a = choir__json_first(list);
    const int64_t enough =
        choir__min(list->count, t->outputs + 1); /* one is there twice then */
    for (int64_t i = 0; i < enough; i++, a = choir__json_next(a)) {
        const choir__json *b = choir__json_first(list);
        for (int64_t k = 0; k < i; k++, b = choir__json_next(b))
            if (a->type == CHOIR__JSON_INTEGER && b->type == CHOIR__JSON_INTEGER &&
                choir__json_real(a) == choir__json_real(b))
                return choir__data_record_wrong(at,
                    "expected each class once in a list of classes, got class %g twice; truth "
                    "values, one for each of %lld classes, are 0.0 and 1.0, or true and false",
                    choir__json_real(a), (long long)t->outputs);
    }
    return CHOIR_OK;
}

static choir_status add_list(choir__targets *t, choir__labels *labels,
    const choir__data_record_at *at, const choir__json *list, bool keep)
{
    const bool truths = are_truths(t, list);
    const choir__json *entry = choir__json_first(list);
    choir_status status = truths ? CHOIR_OK : check_once(t, at, list);
    for (uint32_t i = 0; i < list->count && status == CHOIR_OK;
         i++, entry = choir__json_next(entry)) {
        int64_t label;
        status = truths ? label_of_class(labels, at, i, &label)
                        : choir__labels_add(labels, at, entry, &label);
        if (status == CHOIR_OK && (!truths || is_true(entry)))
            add_label(t, label, keep);
    }
    return status;
}

static choir_status add_classes(choir__targets *t, choir__labels *labels,
    const choir__data_record_at *at, const choir__json *value, bool keep)
{
    choir_status status = CHOIR_OK;
    int64_t label;
    if (value->type == CHOIR__JSON_ARRAY) {
        status = add_list(t, labels, at, value, keep);
    } else if (value->type != CHOIR__JSON_NULL) {
        status = choir__labels_add(labels, at, value, &label);
        if (status == CHOIR_OK)
            add_label(t, label, keep);
    }
    if (status != CHOIR_OK || !keep)
        return status;
    CHOIR__GROW(t->end, t->count);
    t->end[t->count++] = t->used;
    return CHOIR_OK;
}

/* --- both --- */

choir_status choir__targets_add(choir__targets *t, choir__labels *labels,
    const choir__data_record_at *at, const choir__json *value, bool keep)
{
    return t->several ? add_classes(t, labels, at, value, keep)
                      : add_numbers(t, at, value, keep);
}

void choir__targets_get(
    const choir__targets *t, const choir__labels *labels, int64_t sample, float *y)
{
    if (!t->several) {
        for (int64_t i = 0; i < t->outputs; i++)
            y[i] = t->number[sample * t->outputs + i];
        return;
    }
    for (int64_t i = 0; i < t->outputs; i++)
        y[i] = 0;
    for (int64_t i = sample ? t->end[sample - 1] : 0; i < t->end[sample]; i++) {
        int64_t class = choir__label_class(labels, t->label[i]);
        if (class < t->outputs) /* others are refused before: choir_dataset_fits */
            y[class] = 1;
    }
}

void choir__targets_free(choir__targets *t)
{
    free(t->number);
    free(t->label);
    free(t->end);
}
