/* A trial that runs as a process of its own.
 *
 * The process leads a process group, so that a trial of several ranks is stopped as a whole.
 * Its standard output is read line by line: of each line that is a JSON object with a metric as
 * a number, that number is the trial's value until another line has one; with a step, the first
 * metric's is a report, too. Other processes
 * of the trial may write for another second after the first one has ended. Both streams go to
 * the end of files in the trial's folder, if it has one. The parameters are in the environment,
 * too:
 *
 *     CHOIR_TRIAL_NUMBER=3  CHOIR_TRIAL_DIR=...  CHOIR_TRIAL_PARAMS={"lr":0.001,"width":64}
 *     CHOIR_TRIAL_STEP=4  CHOIR_TRIAL_BUDGET=16  CHOIR_TRIAL_UNIT=step
 *     CHOIR_TRIAL_DEVICES=cpu:0,cpu:1
 *
 * A trial that is to stop gets SIGTERM, and its end is none of its own then, whatever its exit
 * status. What it has in its folder's `checkpoint` is there when it goes on (checkpoints.h).
 *
 * Threads: one; the kernel ties the processes to it. */
#ifndef CHOIR_TUNE_RUNNING_H
#define CHOIR_TUNE_RUNNING_H

#include <poll.h>
#include <sys/resource.h>
#include <choir/study.h>

#include "launch/process/process.h"
#include "tune/trials/place.h"
#include "tune/trials/warden.h"

/* The part of a study's commands that all trials share. */
typedef struct choir__trial_job {
    char *const *command; /* ended by NULL */
    const choir_space *space;
    const char *metric[CHOIR_STUDY_OBJECTIVES]; /* (metrics) one per objective */
    int metrics;
    const char *unit; /* the number in a line of JSON that counts a trial's progress: "step" */
    const char *dir;  /* holds a folder per trial; NULL: none */
    double timeout_s; /* 0: none */
    int64_t memory_max;    /* bytes of all processes of a trial; 0: no limit */
    struct rlimit files;   /* trials get this limit (choir__running_room) */
    bool pauses;           /* a trial that stops keeps a checkpoint, and goes on from it */
    bool copies;           /* a trial may begin with another one's checkpoint */
    choir__warden *warden; /* NULL: none */
} choir__trial_job;

/* A stream of the process, of which the line that is not complete yet is kept. */
typedef struct choir__trial_stream {
    int fd, file; /* -1: closed, none */
    char *line;
    size_t bytes;
} choir__trial_stream;

enum { CHOIR__LAST_LINES = 8 };
/* The attribute of a trial that failed: the last lines of its standard error, a list. */
#define CHOIR__LINES_KEY "last_lines"

typedef struct choir__running {
    const choir__trial_job *job;
    const choir__trial_place *place; /* NULL: it is not bound to devices */
    choir_trial *trial;
    choir__family family;
    choir__trial_stream out, err;
    char *last_output; /* the last line of standard output that is neither empty nor JSON */
    char
        *lines[CHOIR__LAST_LINES]; /* (line_count) of standard error, not empty, oldest first */
    int line_count;
    char *dir;
    char *cannot;            /* why the process could not be started; NULL: it was */
    char *refused;           /* why a report was refused; NULL: none was */
    double started, ended;   /* choir__now; ended 0: not yet */
    int64_t step;            /* of the last report, -1: none */
    bool timed_out, stopped; /* stopped: by the scheduler */
    bool has_value[CHOIR_STUDY_OBJECTIVES];
    double value[CHOIR_STUDY_OBJECTIVES]; /* (job->metrics) */
    int64_t bytes;                        /* of memory: it took too many; 0: it did not */
    double weighed;                       /* choir__now, when that was seen */
    int64_t memory_kills;
} choir__running;

enum { CHOIR__RUNNING_FDS = 3 };

/* Raises this process's limit of open files as far as it may, since each trial needs some.
 * Returns the limit from before. */
struct rlimit choir__running_room(void);

/* Returns a word of the environment that processes keep which leave the trial's group; the
 * caller frees it. search: the process that runs the trials. */
char *choir__running_mark(int64_t number, pid_t search);

/* Starts the trial's process. A process that cannot be started is a trial that fails, with the
 * reason, so that a search outlives it: the result is CHOIR_OK. A retried trial keeps the
 * reports of its earlier attempts; one of the same step replaces theirs. */
choir_status choir__running_start(choir__running *r, const choir__trial_job *job,
    const choir__trial_place *place, choir_trial *trial);
/* Fills in pollfds and returns their number. */
int choir__running_poll(const choir__running *r, struct pollfd polled[CHOIR__RUNNING_FDS]);
/* Reads the streams, after poll, and stops the process when its time is over. Returns whether
 * the trial has ended; then everything that its process wrote has been read. Reads a bounded
 * number of bytes, so that no trial keeps the others waiting. */
bool choir__running_look(choir__running *r);
/* Returns for how many ms the caller may sleep, or -1. */
int choir__running_patience(const choir__running *r);
/* Returns how the trial ended, and if it failed, why: text that the caller frees. */
choir_trial_state choir__running_end(choir__running *r, char **why);
/* Kills the rest of the process group and frees the trial's memory. */
void choir__running_free(choir__running *r);

#endif
