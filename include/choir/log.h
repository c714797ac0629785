/* Logs: numbers and events of a training loop, written where other tools open them.
 *
 *     choir_logger *log;
 *     choir_check(choir_log_open("tensorboard:runs/1", choir_log_defaults(), &log));
 *     choir_check(choir_log_add(log, "csv:loss.csv"));        (further destinations)
 *     choir_check(choir_log_param(log, "lr", "0.001"));
 *     for (int64_t step = 1; step <= steps; step++) {
 *         ...
 *         choir_check(choir_log_number(log, "loss", loss));
 *         choir_check(choir_log_step(log, step));             (writes the numbers of the step)
 *     }
 *     choir_check(choir_log_close(log));
 *
 * A destination is NAME:PLACE. `tensorboard:DIR` gets TensorBoard's event files, `csv:FILE` a
 * table, `mlflow:DIR` or `mlflow:http://...` a run of MLflow, `wandb:DIR` an offline run for
 * `wandb sync`, `metrics::PORT` is served in OpenMetrics' form on this machine's loopback
 * address (metrics:HOST:PORT: on another one), and `run:DIR` is a run folder for `choir plot`.
 *
 * Numbers are written with all of their digits. A process that is killed leaves files that can
 * be read. A loop that resumes from a checkpoint sets choir_log_opts.resume to the checkpoint's
 * step: the curve continues there, and records of later steps are replaced.
 *
 * If a destination fails (a full disk), the call returns its error, once; that destination is
 * then closed, and the others continue.
 *
 * Threads: one at a time. Collective: no; of several ranks, let one log. */
#ifndef CHOIR_LOG_H
#define CHOIR_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_logger choir_logger; /* choir_log computes logarithms */

typedef struct choir_log_opts {
    const char *name; /* name of the run, for tools that show several runs; NULL: "choir" */
    /* text that identifies the run, such as the path of its checkpoints, so that MLflow and W&B
     * find the run again when it is resumed; NULL: a random text */
    const char *id;
    /* JSON object that describes the job, for a run folder's job.json; NULL: the parameters */
    const char *job;
    int64_t resume; /* step from which the run continues */
    /* true: the run was logged before, and is continued; false: destinations start empty */
    bool goes_on;
    /* true: the evaluation after step `resume` is done again, and takes the place of the one
     * that is recorded in a folder or table (choir_train_state.eval_due) */
    bool evaluates_again;
} choir_log_opts;

/** NULL, NULL, NULL, 0, false, false. */
choir_log_opts choir_log_defaults(void);

/** Opens a log with one destination, or with none yet if destination is NULL. Errors: argument
 * (an unknown name, a missing place, a job that is not a JSON object), I/O (also a port that is
 * taken), unsupported (this build lacks the library). */
CHOIR_CHECKED choir_status choir_log_open(
    const char *destination, choir_log_opts opts, choir_logger **log);
/** Adds a destination, before the first step. Errors: as choir_log_open, state. */
CHOIR_CHECKED choir_status choir_log_add(choir_logger *log, const char *destination);
/** Ends the log and frees it; returns the first error that any of its destinations had. NULL is
 * fine. */
CHOIR_CHECKED choir_status choir_log_close(choir_logger *log);

/** Sets a hyper-parameter, before the first step. A text that reads as a number, true or false
 * is logged as such. Errors: argument (no name), state. */
CHOIR_CHECKED choir_status choir_log_param(
    choir_logger *log, const char *name, const char *value);

/** Sets a number of the next choir_log_step. Errors: argument: names have 1 to 200 bytes of
 * UTF-8 and no control characters. */
CHOIR_CHECKED choir_status choir_log_number(choir_logger *log, const char *name, double value);
/** Writes the numbers that were set since the last call, for this step. Steps start at 0 or
 * above and ascend. Errors: argument (a negative step, or not above the last one), I/O. */
CHOIR_CHECKED choir_status choir_log_step(choir_logger *log, int64_t step);

/** Logs a text, such as a sample of a language model. Errors: argument, I/O. */
CHOIR_CHECKED choir_status choir_log_text(
    choir_logger *log, int64_t step, const char *name, const char *text);
/** Logs the distribution of values (count). Errors: argument, I/O. */
CHOIR_CHECKED choir_status choir_log_histogram(
    choir_logger *log, int64_t step, const char *name, const float *values, int64_t count);
/** Logs an event, such as "eval", with a JSON object or NULL. An evaluation's numbers also
 * become curves ("eval/loss"). Errors: argument (json is not an object), I/O. */
CHOIR_CHECKED choir_status choir_log_event(
    choir_logger *log, int64_t step, const char *kind, const char *json);

#ifdef __cplusplus
}
#endif
#endif
