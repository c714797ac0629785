/* Shared by the readers of texts with and without labels: the columns. */
#ifndef CHOIR_DATA_LABELLED_H
#define CHOIR_DATA_LABELLED_H

#include "data/images/encoded.h"
#include "data/records.h"

/* The usual names of the columns, ended by NULL. */
extern const char *const choir__column_text[], *const choir__column_pair[],
                                                   *const choir__column_words[];

/* Returns the value of the column that the caller names or, without a name, of the first usual
 * column that the record has; NULL: no such column. */
const choir__json *choir__column(
    const choir__json *record, const char *named, const char *const *usual);

/* Fails: the record has no such column. */
choir_status choir__column_missing(
    const choir__record_at *at, const char *named, const char *const *usual);

/* Lists the words of an array, which the record owns; the caller frees the list, also after an
 * error. Error: format (an entry that is no string). */
choir_status choir__column_pieces(
    const choir__record_at *at, const choir__json *list, choir__piece **pieces);

#endif
