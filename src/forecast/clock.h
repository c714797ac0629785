/* The clock of a replay: which entry runs when. replay.c prepares the prices and reads the
 * result. */
#ifndef CHOIR_FORECAST_CLOCK_H
#define CHOIR_FORECAST_CLOCK_H

#include "forecast/replay.h"

/* A program with its prices. */
typedef struct choir__priced {
    const choir__step_program *program;
    double *seconds; /* (entries) */
    double *spread;  /* (entries) relative standard deviation */
    int *after;      /* (entries) waits of the host before it */
    int64_t **lines; /* (queues) entries of each queue, in order */
    int64_t *line_counts;
    int **members; /* (groups) programs of the group of `first`, in rising order, ended by -1 */
} choir__priced;

typedef struct choir__clock_setup {
    const choir__step *step;
    choir__priced *programs;
    double device_spread;
    uint64_t seed, draw;       /* draw 0: without jitter */
    choir__entry_time **times; /* (programs, entries) or NULL */
    double *busy;              /* (programs) seconds of kernels and copies, added; or NULL */
} choir__clock_setup;

/* Runs a step once; stores its seconds. Error: argument, where entries wait for each other. */
choir_status choir__clock_run(const choir__clock_setup *setup, double *seconds);

#endif
