/* Optuna's tables by SQL: what SQLite and PostgreSQL share (sql*.c), and where they differ.
 *
 * The statements are the same text for both, with $1, $2, ... for values, which are passed as
 * text. */
#ifndef CHOIR_TUNE_STORAGE_SQL_H
#define CHOIR_TUNE_STORAGE_SQL_H

#include "tune/storage/backend.h"

enum { CHOIR__SQL_NUMBER = 32 }; /* bytes of a number's text */

typedef struct choir__sql choir__sql;

/* Gets a row of a result; NULL: SQL's NULL. */
typedef void choir__sql_row(void *arg, const char *const *cells);

/* A statement and the place for its result. */
typedef struct choir__sql_call {
    const char *text;
    int count;
    const char *const *values; /* (count) */
    choir__sql_row *row;       /* NULL: rows are dropped */
    void *arg;
    bool once;       /* the statement is not run again, and its text is not static */
    int64_t changed; /* out: rows that were changed */
} choir__sql_call;

/* An index of ours beside Optuna's tables: a trial's number stands for one trial. */
#define CHOIR__SQL_INDEX "choir_trial_numbers"

typedef struct choir__sql_dialect {
    /* Words of the schema: see schema.c. */
    const char *id, *real, *time;
    bool enums;
    const char *has_tables; /* a query with a row if Optuna's tables are there */
    const char *has_index;  /* the same for the index of trials' numbers */
    const char *begin_read, *begin_write;
    /* finds study $1 of name $2 and keeps others from writing to it; NULL: begin_write does
     * that */
    const char *lock;
    const char *schema_lock; /* keeps others from making the tables; NULL: begin_write does */
    const char *silent_s;    /* seconds since h.heartbeat */
    /* Runs a statement. Errors: peer lost, I/O. */
    choir_status (*run)(choir__sql *db, choir__sql_call *call);
    /* Whether the next commit waits for the disk; NULL: it always does. */
    choir_status (*durable)(choir__sql *db, bool on);
    void (*close)(choir__sql *db);
} choir__sql_dialect;

struct choir__sql {
    choir__study_backend base;
    const choir__sql_dialect *dialect;
    char study_id[CHOIR__SQL_NUMBER];
    char *study_name;  /* SQLite gives a deleted study's id to a later one */
    char *load_trials; /* the statement */
};

choir_status choir__sql_run(choir__sql *db, const char *text);
/* Runs a statement with values (count); changed: NULL, or how many rows it changed. */
choir_status choir__sql_run_with(
    choir__sql *db, int64_t *changed, const char *text, int count, const char *const *values);
#define CHOIR__SQL_RUN(db, changed, text, ...)                                                 \
    choir__sql_run_with(db, changed, text,                                                     \
        (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                    \
        (const char *const[]){__VA_ARGS__})
/* Ends a transaction, and keeps the first error's message. */
choir_status choir__sql_end(choir__sql *db, choir_status status);

/* Within a transaction: fails if the study is not there any more. writes: and keeps others from
 * writing to it. Error: I/O. */
choir_status choir__sql_check_study(choir__sql *db, bool writes);

const char *choir__sql_whole(char text[CHOIR__SQL_NUMBER], int64_t x);

/* Rows (key, JSON) of attributes; arg: choir__stored_attributes. */
void choir__sql_take_user(void *arg, const char *const *cells);
void choir__sql_take_system(void *arg, const char *const *cells);

/* Makes Optuna's tables where they are missing and `create` allows it, and checks their version
 * (schema.c). Errors: format, argument (no tables), I/O. */
choir_status choir__sql_schema(choir__sql *db, bool create);

/* The backend's functions but `open`. */
choir_status choir__sql_list(choir__study_backend *b, choir__study_names *names);
choir_status choir__sql_study(choir__study_backend *b, bool create, choir__stored_study *study);
choir_status choir__sql_load(
    choir__study_backend *b, int64_t from, choir__stored_trials *records);
choir_status choir__sql_write(
    choir__study_backend *b, choir__change *const *changes, int count);
void choir__sql_close(choir__study_backend *b);

#endif
