/* Records of a text file: objects of JSON, or rows of a table.
 *
 *     NAME.jsonl   one object per line
 *     NAME.csv     rows of fields, as in RFC 4180; the first row has the columns' names
 *     NAME.tsv     the same with tabs between fields, which are never quoted
 *
 * A row becomes an object of strings, so readers see one kind of record. */
#ifndef CHOIR_DATA_RECORDS_H
#define CHOIR_DATA_RECORDS_H

#include <jansson.h>
#include "base/base.h"

/* The place of a record, for messages. */
typedef struct choir__record_at {
    const char *path;
    int64_t line; /* from 1 */
} choir__record_at;

typedef choir_status choir__record_fn(
    void *arg, const choir__record_at *at, const json_t *record);

/* Returns whether the name of the file is that of a file of records. */
bool choir__is_record_file(const char *path);

/* Calls fn for each record, in order, until it fails. Empty lines are skipped. Errors: io,
 * format (naming the file and the line), those of fn. */
choir_status choir__records_read(const char *path, choir__record_fn *fn, void *arg);

/* Fails with CHOIR_ERR_FORMAT: "PATH, line N: ...". */
choir_status choir__record_wrong(const choir__record_at *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
