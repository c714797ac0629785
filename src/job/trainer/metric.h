/* A metric of the user's own (--metric NAME=COMMAND): a command that gets a validation's
 * predictions as lines of JSON, and prints a number. */
#ifndef CHOIR_JOB_TRAINER_METRIC_H
#define CHOIR_JOB_TRAINER_METRIC_H

#include <choir/evaluate.h>
#include "base/text.h"
#include "job/job.h"

enum { CHOIR__METRIC_NAME = 32 };

/* Stores the name that --metric gives; "" without the option. */
void choir__metric_name(const choir__job_training *training, char name[CHOIR__METRIC_NAME]);
/* Checks --metric. Error: argument. */
choir_status choir__metric_check(choir__job *job);
/* Checks that the shell finds the command, on rank 0, which will run it. Error: argument. */
choir_status choir__metric_check_command(const choir__job *job);

/* The lines of the batches that this rank counts. */
typedef struct choir__metric_lines {
    const choir__job *job;
    choir__text_buffer text;
} choir__metric_lines;

/* Adds the lines of a batch: choir_eval_opts.scored, with choir__metric_lines as arg. */
choir_status choir__metric_scored(
    void *arg, int64_t first, int64_t n, choir_tensor *outputs, choir_tensor *targets);

/* Gathers the lines on rank 0, in the order of the samples, runs the command there, and stores
 * its number on all ranks of `all`. counting: ranks that share the batches; NULL: each has all
 * of them; all NULL: one rank. A rehearsal runs no command: its number is NaN. Collective.
 * Errors, which all ranks have: argument (the command fails, is too slow, or prints no number),
 * I/O, the groups'. */
choir_status choir__metric_take(
    choir__metric_lines *lines, choir_group *counting, choir_group *all, double *value);

#endif
