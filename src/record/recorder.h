/* The seam of records: the facts that a training reports, and the table of functions of a
 * recorder, which writes them to files, folders or servers.
 *
 *     trainer, or a program's loop
 *       -> choir_log (log.c): a row of numbers per step, events (events.def), histograms
 *            -> recorder: run folder, CSV, TensorBoard, MLflow, W&B, metrics over HTTP
 *       -> recorder of standard output: terminal or JSON (job/report/)
 *
 * Facts flow one way: a recorder returns only a status, and a recorder that fails is closed
 * while the others continue. The registry (recorders.c) alone knows all recorders. This layer
 * stands on base/ alone, so a value is a double and a histogram an array of floats, wherever
 * they come from. */
#ifndef CHOIR_RECORDER_H
#define CHOIR_RECORDER_H

#include <jansson.h>

#include "base/base.h"
#include "record/events.h"

typedef struct choir__number {
    const char *name; /* "loss", "eval/loss", "device/0/cpu:0/bytes" (device of rank 0) */
    double value;
} choir__number;

/* The numbers of one step. A step may have several rows, with different names. */
typedef struct choir__row {
    int64_t step; /* number of steps done, so the first is 1 */
    double time;  /* seconds since 1970 */
    int count;
    const choir__number *numbers; /* (count) */
} choir__row;

/* An evaluation, a checkpoint, a failure, a change of the ranks, a text sample, the end. */
typedef struct choir__record_event {
    const char *kind; /* "eval" */
    int64_t step;
    double time;
    const json_t *fields; /* for logs: an object, {"loss": 2.5, "accuracy": null} */
    /* for recorders of standard output: the event's kind and members (events.def) */
    const choir__event_kind *table;
    const void *told;
} choir__record_event;

typedef struct choir__histogram {
    const char *name; /* "weights/0.weight" */
    int64_t step;
    double time;
    const float *values; /* (count) */
    int64_t count;
} choir__histogram;

/* Facts that are known when a recorder is opened. */
typedef struct choir__record_start {
    const char *name;     /* name of the run, for people */
    const char *id;       /* id of the run, 32 hexadecimal digits; a resumed run keeps it */
    int64_t resume;       /* steps after this one are recorded again; -1: the run is new */
    bool evaluates_again; /* and the evaluation after it */
    double time;
} choir__record_start;

typedef struct choir__recorder choir__recorder;

/* Every entry except name and end may be NULL; recorders in the registry have place and help,
 * and open or needs. */
typedef struct choir__recorder_ops {
    const char *name;  /* NAME of --log NAME:PLACE */
    const char *place; /* "DIR", for the help */
    const char *help;
    /* packages that this build lacks, and so lacks the recorder; or NULL */
    const char *needs;
    /* Checks the form of a place before anything is opened. Error: argument, "expected ...". */
    choir_status (*check)(const char *place);
    /* Makes the recorder. With start->resume it continues an earlier recording of the run and
     * drops the steps after start->resume. The arguments are valid during the call only. If the
     * recorder was made but cannot be used, the caller ends it. */
    choir_status (*open)(
        const char *place, const choir__record_start *start, choir__recorder **made);
    /* Called once, before the first step or event. params: an object of texts, numbers and
     * booleans; job: JSON text, or NULL. */
    choir_status (*begin)(choir__recorder *r, const json_t *params, const char *job);
    choir_status (*step)(choir__recorder *r, const choir__row *row);
    /* NULL for a recorder of rows alone: `step` then gets an evaluation's numbers. */
    choir_status (*event)(choir__recorder *r, const choir__record_event *e);
    choir_status (*histogram)(choir__recorder *r, const choir__histogram *h);
    /* Writes the rest, and frees the recorder, also if it failed before. */
    choir_status (*end)(choir__recorder *r, bool good);
} choir__recorder_ops;

/* The first member of each recorder. */
struct choir__recorder {
    const choir__recorder_ops *ops;
};

/* The measured numbers of an evaluation's fields as a row: "eval/loss". For other kinds of
 * events the row is empty. */
enum { CHOIR__EVENT_NUMBERS = 16 };
typedef struct choir__event_row {
    choir__row row;
    choir__number numbers[CHOIR__EVENT_NUMBERS];
    char names[CHOIR__EVENT_NUMBERS][96];
} choir__event_row;
void choir__event_as_row(const choir__record_event *event, choir__event_row *made);

/* --- the registry: recorders.c --- */

extern const choir__recorder_ops choir__recorder_run, choir__recorder_tensorboard,
    choir__recorder_csv, choir__recorder_metrics, choir__recorder_mlflow, choir__recorder_wandb;

/* Returns recorder i of the registry, or NULL. */
const choir__recorder_ops *choir__recorder_at(size_t i);

/* Finds the recorder that a destination such as "csv:loss.csv" names, and the place after the
 * colon. Errors: argument (an unknown name, a missing place), unsupported (not in this build).
 */
choir_status choir__recorder_find(
    const char *dest, const choir__recorder_ops **ops, const char **place);

/* Fails unless the path can become a table (csv.c): it does not exist, is not a regular file,
 * or is a table that a log wrote. Error: argument. */
choir_status choir__csv_check(const char *path);

/* --- the log: log.c --- */

/* Makes choir_log_close end the log as the log of a failed job, if another process records the
 * failure. NULL is fine. */
struct choir_logger;
void choir__log_end_badly(struct choir_logger *log);

/* Adds a recorder that no destination names, before the first step. The log ends it. */
void choir__log_add_recorder(struct choir_logger *log, choir__recorder *recorder);

/* Logs an event of the table (CHOIR__TOLD). Errors: I/O. */
choir_status choir__log_tell(
    struct choir_logger *log, const choir__event_kind *kind, const void *told);

/* Sets the numbers of an event for the next step, each named PREFIX and its key. Errors:
 * argument. */
choir_status choir__log_numbers(struct choir_logger *log, const char *prefix,
    const choir__event_kind *kind, const void *told);

#endif
