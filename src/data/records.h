/* Records of a file: objects of JSON, or rows of a table.
 *
 *     NAME.jsonl     one object per line
 *     NAME.json      an array of objects (array.c)
 *     NAME.csv       rows of fields, as in RFC 4180; the first row has the columns' names
 *     NAME.tsv       the same with tabs between fields, which are never quoted
 *     NAME.parquet   rows that become lines of JSON (record_bytes.c)
 *
 * A row becomes an object of strings, so readers see one kind of record. A file is read a part
 * at a time, and records are parsed where they lie, so memory is bounded by the longest one. */
#ifndef CHOIR_DATA_RECORDS_H
#define CHOIR_DATA_RECORDS_H

#include "base/base.h"
#include "base/files/map.h"
#include "data/json.h"

/* Rows of a Parquet file as lines of JSON, by the plug-in choir_parquet.so. */
typedef struct choir__parquet choir__parquet;

/* The place of a record, for messages. */
typedef struct choir__data_record_at {
    const char *path;
    int64_t line;   /* number from 1; 0: the path alone identifies it */
    int64_t column; /* byte of the line, from 1; 0: the whole record */
    bool row;       /* `line` is the number of a row, which has no bytes of its own */
} choir__data_record_at;

/* A file of records that is being read. */
typedef struct choir__data_records {
    choir__data_record_at at; /* the current record */
    int fd;
    choir__parquet *rows; /* used instead of fd; NULL: the file is a text */
    bool table, quotes;   /* table: rows of fields; quotes: fields may be quoted */
    bool text;            /* lines of text: a record is a string, with its line end */
    bool array;           /* objects of an array */
    bool ended;           /* the file has no more bytes */
    char separator;
    char *data; /* (room + 1) bytes [next, end) are not read yet */
    size_t next, end, room;
    size_t searched; /* no line ends in [next, searched); if below next, nothing was searched */
    int64_t places;  /* brackets and commas of an array so far */
    int64_t lines, behind;   /* lines of the current record; lines of the file including it */
    choir__json_nodes nodes; /* the current record */
    char **columns;          /* (column_count) columns of a table */
    size_t column_count;
    choir__map names; /* names of the columns */
} choir__data_records;

/* Returns whether the file's name ends like a file of records; of .json, whether the file is an
 * array of objects. */
bool choir__is_record_file(const char *path);

/* Opens a regular file, whose kind its name tells. Close it also after an error. Errors: io.
 * Tests call it, too. */
choir_status choir__data_records_open(choir__data_records *records, const char *path);
/* Takes records of JSON from a descriptor, which close closes. name: for messages. */
void choir__data_records_take(choir__data_records *records, int fd, const char *name);
/* Looks at the first character that is not blank: other than {, records are lines of text.
 * Errors: io. */
choir_status choir__data_records_look(choir__data_records *records, bool *documents);
void choir__data_records_close(choir__data_records *records);

/* Reads the next record into *record, which is valid until the next call; NULL: there are no
 * more. Empty lines are skipped. Errors: io, format (naming the file, the line and the column).
 */
choir_status choir__data_records_next(choir__data_records *records, const choir__json **record);

typedef choir_status choir__data_record_fn(
    void *arg, const choir__data_record_at *at, const choir__json *record);

/* Calls fn for each record of a file, in order, until it fails. Errors: as
 * choir__data_records_next, errors of fn. */
choir_status choir__data_records_read(const char *path, choir__data_record_fn *fn, void *arg);

/* Returns "PATH, line N" or "PATH, row N"; the caller frees it. */
char *choir__data_record_place(const choir__data_record_at *at);

/* Fails with CHOIR_ERR_FORMAT: "PATH, line N: ...". */
choir_status choir__data_record_wrong(const choir__data_record_at *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* --- bytes: record_bytes.c --- */

/* Reads more bytes behind the ones that are there. Errors: io, format, memory. */
choir_status choir__data_records_fill(choir__data_records *records);
/* Returns the number of line ends in [from, end). */
int64_t choir__lines_in(const char *from, const char *end);
/* Opens a regular Parquet file. Errors: io, format, unsupported (there is no plug-in). */
choir_status choir__data_record_rows_open(const char *path, choir__parquet **file);
/* NULL is fine */
void choir__data_record_rows_close(choir__parquet *file);

/* --- arrays: array.c --- */

/* Returns whether a file NAME.json begins like an array of objects. */
bool choir__is_array_file(const char *path);
/* Finds the next object [*from, *end) of an array; *end NULL: there are no more. Errors: io,
 * format. */
choir_status choir__array_find(choir__data_records *records, char **from, char **end);
choir_status choir__array_parse(choir__data_records *records, char *from, char *end);

/* --- rows of tables: table.c --- */

/* Finds the end of the row that begins at data + next: its line's end, or the end of a file
 * that has ended. Sets the number of its lines. Returns false if the row does not end before
 * `end`. */
bool choir__table_find_row(choir__data_records *records, char **end);
/* Parses the row [row, end), whose end is overwritten, into the nodes, or, if the columns are
 * not known yet, into the columns. Errors: format, memory. */
choir_status choir__table_parse_row(choir__data_records *records, char *row, char *end);

#endif
