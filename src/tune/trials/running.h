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
 * A trial that must stop gets SIGTERM, and then counts as stopped, whatever its exit status.
 * The contents of its folder's `checkpoint` are there when it is resumed (checkpoints.h).
 *
 * Threads: one; the kernel ties the processes to it. */
#ifndef CHOIR_TUNE_RUNNING_H
#define CHOIR_TUNE_RUNNING_H

#include <sys/resource.h>
#include <sys/types.h>
#include <choir/study.h>
#include "base/base.h"
#include "tune/driver.h"
#include "tune/trials/device_shares.h"

/* A process that outlives the search by a moment: when the search dies, however it dies, the
 * warden kills what its trials have started.
 *
 * The kernel kills a trial's first process together with the search, but not the processes
 * that it has started itself. They would continue to write to the trial's checkpoint while
 * another search runs the trial. */

/* In the environment of a trial's processes: their search and trial, "PID/NUMBER". */
#define CHOIR__TRIAL_MARK "CHOIR_TRIAL_OF="

typedef struct choir__warden choir__warden;

/* Starts a warden of at most `most` process groups. Error: I/O. */
choir_status choir__warden_new(int most, choir__warden **warden);
void choir__warden_watch(choir__warden *w, pid_t group);
void choir__warden_forget(choir__warden *w, pid_t group);
/* Ends the warden, which kills the groups that it watches; NULL is allowed. */
void choir__warden_free(choir__warden *w);

/* The part of a study's commands that all trials share. */
typedef struct choir__trial_job {
    char *const *command; /* ended by NULL */
    const choir_space *space;
    const char *metric[CHOIR_STUDY_OBJECTIVES]; /* (metrics) one per objective */
    int metrics;
    const char *unit; /* the number in a line of JSON that counts a trial's progress: "step" */
    const char *dir;  /* holds a folder per trial; NULL: none */
    double timeout_s; /* limit of an attempt; 0: none */
    int64_t memory_max;    /* bytes of all processes of a trial; 0: no limit */
    struct rlimit files;   /* trials get this limit (choir__running_room) */
    bool pauses;           /* a paused trial keeps a checkpoint, from which it is resumed */
    bool copies;           /* a trial may begin with another one's checkpoint */
    choir__warden *warden; /* NULL: none */
} choir__trial_job;

/* A stream of the process, with the line that is not complete yet. */
typedef struct choir__trial_stream {
    int fd, file; /* -1: closed, none */
    char *line;
    size_t bytes;
} choir__trial_stream;

enum { CHOIR__LAST_LINES = 8 };
/* The attribute of a trial that failed: the last lines of its standard error, a list. */
#define CHOIR__LINES_KEY "last_lines"

typedef struct choir__running {
    choir__attempt base;
    const choir__trial_job *job;
    choir__trial_stream out, err;
    char *last_output; /* the last line of standard output that is neither empty nor JSON */
    /* (line_count) of standard error, not empty, oldest first */
    char *lines[CHOIR__LAST_LINES];
    int line_count;
    char *dir;
    char *refused; /* why a report was refused; NULL: none was */
    double ended;  /* choir__now; 0: not yet */
    int64_t step;  /* step of the last report; -1: no report */
    bool stopped;  /* the scheduler has stopped it */
    bool has_value[CHOIR_STUDY_OBJECTIVES];
    double value[CHOIR_STUDY_OBJECTIVES]; /* (job->metrics) */
    int64_t bytes;                        /* bytes of memory, if it took too many; else 0 */
    double weighed;                       /* choir__now, when that was seen */
    int64_t memory_kills;
} choir__running;

/* Raises this process's limit of open files as far as it may, since each trial needs some.
 * Returns the limit from before. */
struct rlimit choir__running_room(void);

/* Returns a word of the environment that processes keep which leave the trial's group; the
 * caller frees it. search: the process that runs the trials. */
char *choir__running_mark(int64_t number, pid_t search);

/* Starts the trial's process. share: NULL, it is not bound to devices. A retried trial keeps
 * the reports of its earlier attempts; one of the same step replaces theirs. Error: its process
 * could not be started. */
choir_status choir__running_start(
    choir__attempt *a, const choir__trial_job *job, const choir__device_share *share);

/* The other functions of a runner (driver.h). Looking reads a bounded number of bytes, so that
 * no trial keeps the others waiting. */
int choir__running_poll(const choir__attempt *a, struct pollfd polled[CHOIR__ATTEMPT_FDS]);
int choir__running_patience(const choir__attempt *a);
bool choir__running_look(choir__attempt *a);
choir__trial_end choir__running_end(choir__attempt *a, char *why);
void choir__running_clear(choir__attempt *a);

#endif
