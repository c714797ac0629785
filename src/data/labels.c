/* From labels to classes: while a file is read, a label has the number of its appearance; at
 * the end of the training split, numbers become the classes themselves, and texts are sorted.
 * Labels that a model's classes or the training split lack are refused with their place. */
#include "data/labels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/options.h"
#include "base/utf8.h"

enum { CLASSES_MAX = 1 << 20 };

static choir_status text_of(const choir__data_record_at *at, const choir__json *label,
    char number[24], const char **text)
{
    int64_t whole;
    *text = number;
    if (choir__json_integer(label, &whole))
        snprintf(number, 24, "%lld", (long long)whole);
    else if (label->type == CHOIR__JSON_TRUE || label->type == CHOIR__JSON_FALSE)
        snprintf(number, 24, "%d", label->type == CHOIR__JSON_TRUE);
    else if (label->type == CHOIR__JSON_STRING && !*label->text)
        return choir__data_record_wrong(at, "expected a label, got an empty text");
    else if (label->type == CHOIR__JSON_STRING)
        *text = label->text;
    else
        return choir__data_record_wrong(
            at, "expected a label that is a text or a whole number");
    return CHOIR_OK;
}

/* Returns the number that a text represents; -1: not a number. */
static int64_t number_in(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return *text && !text[digits] && digits <= 18 ? strtoll(text, NULL, 10) : -1;
}

/* Notes where the largest and the least of the labels that are whole numbers were found. */
static void note_extremes(choir__labels *l, const choir__data_record_at *at, const char *text)
{
    int64_t number;
    if (!choir__parse_int(text, INT64_MIN, INT64_MAX, &number))
        return;
    if (!l->largest_place || number > l->largest) {
        free(l->largest_place);
        l->largest = number;
        l->largest_place = choir__data_record_place(at);
    }
    if (!l->least_place || number < l->least) {
        free(l->least_place);
        l->least = number;
        l->least_place = choir__data_record_place(at);
    }
}

/* Adds a label that was not seen before. */
static void append(choir__labels *l, const char *text)
{
    CHOIR__GROW(l->text, l->count);
    json_object_set_new(l->seen, text, json_integer(l->count));
    l->text[l->count++] = json_object_iter_key(json_object_iter_at(l->seen, text));
}

choir_status choir__labels_give(choir__labels *l, const choir_class_names *classes)
{
    l->seen = json_object();
    for (int64_t c = 0; c < classes->count; c++) {
        if (!choir__is_utf8(classes->name[c], strlen(classes->name[c])))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "expected names of classes in UTF-8, got other bytes as that of class %lld",
                (long long)c);
        char *again = choir__format("%s (%lld)", classes->name[c], (long long)c);
        bool twice = json_object_get(l->seen, classes->name[c]) != NULL;
        append(l, twice ? again : classes->name[c]); /* a label means the first of that name */
        free(again);
    }
    l->given = l->count;
    return CHOIR_OK;
}

static choir_status not_given(
    const choir__labels *l, const choir__data_record_at *at, const char *text)
{
    choir_class_names names = {(char **)(uintptr_t)l->text, l->given};
    char *list = choir__class_names_list(&names);
    choir_status status = choir__data_record_wrong(
        at, "the label '%.60s' is not one of the model's classes: %s", text, list);
    free(list);
    return status;
}

/* Adds the class of a label that is a number, and that the training split lacks. */
static void add_class(choir__labels *l, int64_t number)
{
    const int64_t class = number_in(l->text[number]);
    l->class_of = choir__realloc(l->class_of, (size_t)l->count * sizeof *l->class_of);
    l->class_of[number] = class;
    l->classes = choir__max(l->classes, class + 1);
}

choir_status choir__labels_add(choir__labels *l, const choir__data_record_at *at,
    const choir__json *label, int64_t *number)
{
    char digits[24];
    const char *text;
    choir_status status = text_of(at, label, digits, &text);
    if (status != CHOIR_OK)
        return status;
    if (!l->seen)
        l->seen = json_object();
    const json_t *known = json_object_get(l->seen, text);
    if (known) {
        *number = json_integer_value(known);
        l->named |= *number < l->given;
        return CHOIR_OK;
    }
    if (l->given && (l->named || number_in(text) < 0))
        return not_given(l, at, text);
    if (l->settled && (l->sorted || number_in(text) < 0 || number_in(text) >= CLASSES_MAX))
        return choir__data_record_wrong(
            at, "the label '%s' is not in the training split", text);
    if (!choir__is_utf8(text, strlen(text)))
        return choir__data_record_wrong(
            at, "the label is not UTF-8, as the name of a class must be");
    if (l->count == CLASSES_MAX)
        return choir__data_record_wrong(at, "there are more than %d labels", CLASSES_MAX);
    *number = l->count;
    append(l, text);
    note_extremes(l, at, text);
    if (l->settled)
        add_class(l, *number);
    return CHOIR_OK;
}

static void sort(choir__labels *l)
{
    l->classes = l->count;
    l->sorted = choir__calloc((size_t)l->count + 1, sizeof *l->sorted);
    memcpy(l->sorted, l->text, (size_t)l->count * sizeof *l->text);
    qsort(l->sorted, (size_t)l->count, sizeof *l->sorted, choir__by_text);
    for (int64_t c = 0; c < l->count; c++)
        l->class_of[json_integer_value(json_object_get(l->seen, l->sorted[c]))] = c;
}

static bool is_largest(const choir__labels *l, const char *text)
{
    return l->largest_place && number_in(text) == l->largest;
}

/* Returns whether all labels are whole numbers, some of them negative. */
static bool has_negative_numbers(const choir__labels *l)
{
    int64_t number;
    for (int64_t i = 0; i < l->count; i++)
        if (!choir__parse_int(l->text[i], INT64_MIN, INT64_MAX, &number))
            return false;
    return l->least_place && l->least < 0;
}

/* The classes are the given ones; labels beyond them are numbers of classes. */
static choir_status settle_given(choir__labels *l)
{
    l->classes = l->given;
    l->sorted = choir__calloc((size_t)l->given + 1, sizeof *l->sorted);
    for (int64_t i = 0; i < l->count; i++) {
        l->class_of[i] = i < l->given ? i : number_in(l->text[i]);
        if (l->class_of[i] >= l->given || (i >= l->given && l->named))
            return choir__error(CHOIR_ERR_RANGE,
                "%s%sthe label %s is not one of the model's %lld classes",
                is_largest(l, l->text[i]) ? l->largest_place : "",
                is_largest(l, l->text[i]) ? ": " : "", l->text[i], (long long)l->given);
        if (i < l->given)
            l->sorted[i] = l->text[i];
    }
    return CHOIR_OK;
}

choir_status choir__labels_settle(choir__labels *l)
{
    int64_t numbers = 0;
    l->settled = true;
    l->class_of = choir__calloc((size_t)l->count + 1, sizeof *l->class_of);
    if (l->given)
        return settle_given(l);
    if (has_negative_numbers(l))
        return choir__error(CHOIR_ERR_RANGE,
            "%s: the label %lld is negative: expected numbers of classes, from 0, or names",
            l->least_place, (long long)l->least);
    for (int64_t i = 0; i < l->count; i++)
        numbers += (l->class_of[i] = number_in(l->text[i])) >= 0;
    if (numbers < l->count) {
        sort(l);
        return CHOIR_OK;
    }
    for (int64_t i = 0; i < l->count; i++) {
        if (l->class_of[i] >= CLASSES_MAX)
            return choir__error(CHOIR_ERR_RANGE,
                "%s: the label %lld is too large for the number of a class", l->largest_place,
                (long long)l->largest);
        l->classes = choir__max(l->classes, l->class_of[i] + 1);
    }
    return CHOIR_OK;
}

int64_t choir__label_class(const choir__labels *l, int64_t number)
{
    return number < 0 ? number : l->class_of[number];
}

bool choir__labels_are_numbers(const choir__labels *l)
{
    return l->given && !l->named && l->count > l->given;
}

const char *choir__label_name(const choir__labels *l, int64_t class)
{
    return l->sorted && class >= 0 && class < l->classes ? l->sorted[class] : NULL;
}

void choir__labels_free(choir__labels *l)
{
    json_decref(l->seen);
    free(l->text);
    free(l->class_of);
    free(l->sorted);
    free(l->largest_place);
    free(l->least_place);
    *l = (choir__labels){0};
}
