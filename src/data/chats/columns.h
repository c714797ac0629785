/* The columns of records of conversations and documents, by Choir's names and the file's. */
#ifndef CHOIR_DATA_CHAT_COLUMNS_H
#define CHOIR_DATA_CHAT_COLUMNS_H

#include "base/base.h"
#include "data/json.h"

#define CHOIR__COLUMNS(X)                                                                      \
    X(text)                                                                                    \
    X(prompt)                                                                                  \
    X(completion)                                                                              \
    X(messages) X(conversations) X(tools) X(system) X(instruction) X(input) X(output)

/* The file's name of each column; "": the same name. All zeros: the same names. */
typedef struct choir__columns {
#define CHOIR__COLUMN(name) char name[256];
    CHOIR__COLUMNS(CHOIR__COLUMN)
#undef CHOIR__COLUMN
} choir__columns;

/* Reads "prompt=question,completion=answer"; NULL: the same names. Error: argument. */
choir_status choir__columns_parse(const char *text, choir__columns *columns);

/* Returns the record's value in a column, or NULL; null is no value. */
#define choir__column(columns, record, name)                                                   \
    choir__column_named((record), (columns) ? (columns)->name : "", #name)
const choir__json *choir__column_named(
    const choir__json *record, const char *own, const char *name);

#endif
