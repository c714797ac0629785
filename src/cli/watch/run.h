/* A run folder as it grows (record/run_folder.c): its job, the numbers of its steps and its
 * evaluations, its events. */
#ifndef CHOIR_CLI_WATCH_RUN_H
#define CHOIR_CLI_WATCH_RUN_H

#include "cli/watch/table.h"

#include <jansson.h>
#include "cli/watch/chain.h"
#include "cli/watch/source.h"
#include "cli/watch/tail.h"

enum { CHOIR__WATCH_EVENTS = 200 }; /* the newest ones that are kept */

typedef struct choir__watch_run {
    choir__watch_source source;
    int64_t generation; /* counts the times that its files were replaced */
    choir__tail metrics, events;
    choir__watch_chain chain;
    choir__watch_table steps, evals;
    choir__watch_x x;             /* place of the last step */
    double first_time, last_time; /* seconds since 1970, of records; NaN: none yet */
    char state[16];               /* "waiting", "running", "ended", "failed", "interrupted" */
    char *told[CHOIR__WATCH_EVENTS]; /* JSON; event n is at n % CHOIR__WATCH_EVENTS */
    int64_t event_count;
    char *job; /* text of job.json, in one line; NULL: none */
    double job_changed;
    int job_version;
} choir__watch_run;

/* Returns whether the folder has a file of a run. */
bool choir__watch_is_run(const char *path);

choir__watch_run *choir__watch_run_new(const char *path);
void choir__watch_run_free(choir__watch_run *run);
/* Reads all new lines, or some megabytes of them; returns true if more can be read now. */
bool choir__watch_run_look(choir__watch_run *run);

/* The state of a run that one reader of the page knows. */
typedef struct choir__watch_known {
    int64_t generation, events;
    int job_version;
    char state[16];
    double last_time;
    bool any;
    choir__watch_seen steps, evals;
    choir__watch_chain_known chain;
} choir__watch_known;

/* Adds the news since `known`, as server-sent events: run, steps, evals, events, chain. They
 * name the run by `id`. */
void choir__watch_run_news(
    const choir__watch_run *run, int id, choir__watch_known *known, choir__text_buffer *out);

/* JSON that others have written, which is parsed and shown within bounds: a text may ask for
 * any depth and any size, and the parser and the printer call themselves for each level. */

/* Returns the value, or NULL if the text (bytes) is no JSON or nests deeper than records do. */
json_t *choir__watch_json(const char *text, size_t bytes);
/* Reads a regular file of at most `most` bytes as such a value; returns NULL also if it cannot
 * be read. */
json_t *choir__watch_json_file(const char *path, size_t most);

/* Returns an event as one line of JSON, of some kilobytes at most; it cuts the event's texts.
 * An event that is longer even so keeps its "event", "step" and "time", with
 * "too_long":true. The caller frees it. */
char *choir__watch_json_event(json_t *event);

#endif
