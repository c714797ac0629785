/* A table of numbers over the steps of a run, of any length in bounded memory.
 *
 * The rows of a run go into at most CHOIR__WATCH_BUCKETS buckets of equally many rows. When all
 * are full, neighbours are joined: half as many buckets remain, each of twice as many rows. A
 * bucket keeps the mean, the lowest and the highest of each column, so a peak of one step stays
 * visible in a million of them.
 *
 *     rows     1 2 3 4 5 6 7 8 9        buckets of 1
 *              1-2 3-4 5-6 7-8 9        buckets of 2, the last one not full yet */
#ifndef CHOIR_CLI_WATCH_TABLE_H
#define CHOIR_CLI_WATCH_TABLE_H

#include "base/base.h"
#include "base/text.h"

enum {
    CHOIR__WATCH_BUCKETS = 768,
    CHOIR__WATCH_COLUMNS = 400,
    CHOIR__WATCH_NAME = 400, /* bytes of a column's name; devices have the longest names */
};

typedef struct choir__watch_cell {
    double sum;
    float low, high;
    int64_t count; /* count of finite numbers; 0: the other members are invalid */
} choir__watch_cell;

typedef struct choir__watch_column {
    char *name;
    choir__watch_cell *cells; /* (CHOIR__WATCH_BUCKETS) */
} choir__watch_column;

/* The three axes of a bucket, at its last row. */
typedef struct choir__watch_x {
    double step, seconds, items; /* seconds: working time, without breaks */
} choir__watch_x;

typedef struct choir__watch_table {
    int64_t rows, each; /* each: rows of a full bucket */
    int buckets;        /* the last one may not be full */
    int halvings;
    choir__watch_x x[CHOIR__WATCH_BUCKETS];
    choir__watch_column columns[CHOIR__WATCH_COLUMNS];
    int column_count;
    int left_out; /* numbers left out: the name is too long, or no column is free */
} choir__watch_table;

/* Begins a row; its numbers follow. */
void choir__watch_table_row(choir__watch_table *t, choir__watch_x x);
/* Adds a number to the row. guess: the column where the last such number went, or any; returns
 * the column, -1 if there is no room or the name is too long. */
int choir__watch_table_put(
    choir__watch_table *t, const char *name, size_t length, double value, int guess);
void choir__watch_table_free(choir__watch_table *t);

/* The part of a table that a reader knows. */
typedef struct choir__watch_seen {
    int64_t rows;
    int halvings, columns, buckets;
} choir__watch_seen;

/* Adds the buckets that are new or have changed as members of a JSON object, and notes in
 * `seen` that they are known: "from" (where they belong), "step", "seconds", "items", and
 * "columns", each {"mean":[...],"low":[...],"high":[...]}; low and high are left out where
 * `ranged` says no. Returns false, and adds nothing, if nothing is new. */
bool choir__watch_table_news(const choir__watch_table *t, choir__watch_seen *seen,
    bool (*ranged)(const char *name), choir__text_buffer *json);

#endif
