/* Classes of a dataset, from labels in its files.
 *
 * Labels that are all numbers are the classes themselves. Labels that are texts are sorted, and
 * the class is the place in that order. While a file is read, a label has a number of its own
 * (the order of appearance); it has a class once the training split has been read. Where a
 * model gives the classes, these are the first labels, and every label must be among them. */
#ifndef CHOIR_DATA_LABELS_H
#define CHOIR_DATA_LABELS_H

#include <jansson.h>

#include "data/dataset.h"
#include "data/images/encoded.h"
#include "data/records.h"

typedef struct choir__labels {
    json_t *seen;        /* text -> number */
    const char **text;   /* (count) texts of labels, by number; owned by `seen` */
    int64_t *class_of;   /* (count) classes of labels, by number */
    const char **sorted; /* (classes) names by class; NULL: classes are numbers */
    int64_t count, classes;
    int64_t given; /* labels that a model gives: its classes; 0: none */
    bool named;    /* a label that is not a number was found */
    bool settled;
    int64_t largest, least;            /* range of the labels that are whole numbers */
    char *largest_place, *least_place; /* "set.csv, line 3"; NULL: no such label */
} choir__labels;

/* Begins with the classes of a model, before any label is added. Error: argument (a name that
 * is not UTF-8). */
choir_status choir__labels_give(choir__labels *labels, const choir_class_names *classes);

/* Adds a label, a text or a whole number, and stores its number. Errors: format (neither of the
 * two; an empty text; a text that is not among the given classes; a text that is not UTF-8;
 * after choir__labels_settle, a text that was not there before: numbers are classes by
 * themselves). */
choir_status choir__labels_add(choir__labels *labels, const choir__data_record_at *at,
    const choir__json *label, int64_t *number);

/* Gives each label its class. Error: range (a number that is no class). */
choir_status choir__labels_settle(choir__labels *labels);

/* Returns the class of a label's number; a negative number (CHOIR_IGNORED) is its own. */
int64_t choir__label_class(const choir__labels *labels, int64_t number);

/* Returns whether labels are numbers of classes that were given by name. */
bool choir__labels_are_numbers(const choir__labels *labels);

/* Returns the text of a class; NULL: classes are numbers, or there is no such class. */
const char *choir__label_name(const choir__labels *labels, int64_t class);

/* Return where the largest label that is a number was found ("set.csv, line 3"), or NULL, also
 * for a dataset of another kind. The dataset keeps the text. */
const char *choir__labelled_largest(const choir_dataset *dataset);
const char *choir__file_shards_largest(const choir_dataset *dataset);

void choir__labels_free(choir__labels *labels);

/* Shared by the readers of texts with and without labels: the columns. */

/* The file's names of columns; "": the usual ones. */
typedef struct choir__labelled_columns {
    char text[256], pair[256], label[256];
} choir__labelled_columns;

/* Reads "text=review,label=stars" (NULL: the usual names), and names these columns in *opts,
 * which points into *columns then. Error: argument. */
choir_status choir__labelled_columns_parse(
    const char *text, choir__labelled_columns *columns, choir_labelled_opts *opts);

/* The usual names of the columns, ended by NULL. */
extern const char *const choir__column_text[], *const choir__column_pair[],
                                                   *const choir__column_words[];

/* Returns the value of the column that the caller names or, without a name, of the first usual
 * column that the record has; NULL: no such column. */
const choir__json *choir__column(
    const choir__json *record, const char *named, const char *const *usual);

/* Fails: the record has no such column. */
choir_status choir__column_missing(
    const choir__data_record_at *at, const char *named, const char *const *usual);

/* Lists the words of an array, which the record owns; the caller frees the list, also after an
 * error. Error: format (an entry that is no string). */
choir_status choir__column_pieces(
    const choir__data_record_at *at, const choir__json *list, choir__piece **pieces);

#endif
