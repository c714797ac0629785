/* A search as it was asked for, by options or by a study file. */
#ifndef CHOIR_CLI_TUNE_REQUEST_H
#define CHOIR_CLI_TUNE_REQUEST_H

#include <choir/study.h>

#include "line/command.h"
#include "tune/trials/device_shares.h"

/* choir tune: the devices and the memory of the machine, and how many trials there is room for.
 */

enum { CHOIR__TUNE_DEVICES = 1024 };

typedef struct choir__tune_machine {
    const char *devices; /* --devices; NULL: trials are not bound to any */
    int64_t devices_each;
    int64_t memory_each; /* bytes; 0: no limit */
    /* The devices of each trial; NULL: none are bound */
    choir__device_share *shares; /* (share_count) */
    int share_count;
} choir__tune_machine;

/* Divides the devices among the trials, and checks or chooses how many run at once: *parallel,
 * 0: unspecified. Returns an exit status. */
int choir__tune_machine_read(choir__tune_machine *m, int64_t *parallel);

/* A value of an option that may be given several times. */
typedef struct choir__tune_given {
    const char *option; /* "space" */
    char *text;
} choir__tune_given;

typedef struct choir__tune_request {
    /* The last values of options that may be given several times; all are in `given`. */
    const char *space, *require, *enqueue, *metric;
    const char *direction, *unit, *sampler, *scheduler, *dir, *storage, *name, *plot, *test;
    int64_t trials, parallel, window, retries, failures_max, seed;
    choir__tune_machine machine;
    double timeout_s;
    bool json, quiet, free, print_study;
    choir__tune_given *given; /* (given_count) in their order */
    int given_count;
    uint64_t on_line;    /* bit i: the command line has option i of the table */
    char **command;      /* ended by NULL; argv's, or the file's */
    char **own_command;  /* the file's, freed with the request */
    struct json_t *file; /* the study file, whose texts the options use; NULL: none */
} choir__tune_request;

/* --- request.c --- */

/* Adds a value. */
void choir__tune_give(choir__tune_request *r, const char *option, const char *text);
/* Returns the option's next value from place *from on, which is 0 at first, and moves *from
 * past it; NULL: no more values. */
const char *choir__tune_given_next(const choir__tune_request *r, const char *option, int *from);
void choir__tune_request_free(choir__tune_request *r);

/* A metric and its direction: "accuracy:max". */
typedef struct choir__tune_metrics {
    char *name[CHOIR_STUDY_OBJECTIVES]; /* (count) */
    bool most[CHOIR_STUDY_OBJECTIVES];
    int count;
} choir__tune_metrics;

/* Reads the metrics, eval_loss unless specified. Error: argument. */
choir_status choir__tune_metrics_read(const choir__tune_request *r, choir__tune_metrics *m);
void choir__tune_metrics_free(choir__tune_metrics *m);

/* Fills in the space. Error: argument. */
choir_status choir__tune_space(const choir__tune_request *r, choir_space *space);
/* Opens the study, and enqueues the given trials. Errors: as choir_study_open. */
choir_status choir__tune_study(const choir__tune_request *r, const choir__tune_metrics *m,
    const choir_space *space, choir_study **study);

/* --- file.c --- */

/* Takes what the study file says and the command line does not. Errors: I/O, format, argument.
 */
choir_status choir__tune_file_read(
    const char *path, const choir__line_option *options, choir__tune_request *r);
/* Returns the path of the study file that a search keeps in its folder; the caller frees it. */
char *choir__tune_file_of(const char *dir);
/* Writes the request to that file. Errors: as choir__tune_file_print; I/O. */
choir_status choir__tune_file_keep(
    const choir__line_option *options, const choir__tune_request *r);
/* Prints the request as a study file. Error: argument (a text is not UTF-8; a parameter is
 * there twice). */
choir_status choir__tune_file_print(
    const choir__line_option *options, const choir__tune_request *r);

/* Checks of choir tune before a search begins. */

/* Returns whether the scheduler pauses and resumes trials. */
bool choir__tune_pauses(const choir__tune_request *request);

/* Checks the command, its placeholders, folders and the picture, and makes --dir. Errors:
 * argument, io. */
choir_status choir__tune_check(const choir__tune_request *request,
    const choir__tune_metrics *metrics, const choir_space *space);

#endif
