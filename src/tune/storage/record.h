/* Trials as storages hold them, and changes of them: what the backends read and write.
 *
 * Names and values are Optuna's: a parameter has an internal value (of a choice, its place) and
 * its distribution as JSON, an attribute is JSON under a key. */
#ifndef CHOIR_TUNE_STORAGE_RECORD_H
#define CHOIR_TUNE_STORAGE_RECORD_H

#include <choir/study.h>

#include "tune/storage/attributes.h"
#include "tune/trial.h"

/* choir_trial_state, and Optuna's state of a trial that is to be run later. */
enum { CHOIR__STORED_WAITING = CHOIR_TRIAL_FAIL + 1 };

typedef struct choir__stored_param {
    char *name, *dist;
    double value;
} choir__stored_param;

typedef struct choir__trial_record {
    int64_t number;
    int state;
    double silent_s; /* since the last heartbeat; NaN: there is none */
    choir__stored_param *params;
    int param_count;
    double values[CHOIR_STUDY_OBJECTIVES];
    int value_count;
    choir__report *reports; /* by step, once the record is settled */
    int64_t report_count;
    bool mixed; /* they are not by step so far */
    choir__stored_attributes attributes;
} choir__trial_record;

typedef struct choir__trial_records {
    choir__trial_record *at; /* (count) by number */
    int64_t count;
} choir__trial_records;

/* A study, as it is stored. */
typedef struct choir__stored_study {
    char *name;
    bool most[CHOIR_STUDY_OBJECTIVES]; /* more is better */
    int objectives;
    choir__stored_attributes attributes;
} choir__stored_study;

/* Returns a new record behind the others. */
choir__trial_record *choir__records_add(choir__trial_records *r, int64_t number);
/* Returns the record of a trial, or NULL. */
choir__trial_record *choir__records_find(const choir__trial_records *r, int64_t number);
void choir__records_free(choir__trial_records *r);

/* Takes copies of the texts. A step that is there already is replaced. */
void choir__record_param(
    choir__trial_record *r, const char *name, const char *dist, double value);
void choir__record_report(choir__trial_record *r, int64_t step, double value);
/* Sorts the reports by step; the last one of a step counts. The store does it (store.c). */
void choir__record_settle(choir__trial_record *r);
void choir__stored_study_free(choir__stored_study *s);

/* Returns the state's name, "RUNNING", or the state of a name, -1: unknown. */
const char *choir__stored_state_name(int state);
int choir__stored_state(const char *name);

/* --- changes --- */

typedef enum choir__change_kind {
    CHOIR__CHANGE_BEGIN, /* a trial that is not there yet, or waits, runs */
    CHOIR__CHANGE_TAKE,  /* a trial whose worker is dead has this worker */
    CHOIR__CHANGE_REPORT,
    CHOIR__CHANGE_ATTRIBUTE,
    CHOIR__CHANGE_PAUSE, /* a segment of a trial that may go on has ended */
    CHOIR__CHANGE_END,
    CHOIR__CHANGE_BEAT,  /* the trial's worker is alive */
    CHOIR__CHANGE_LEAVE, /* the trial's worker gives it up */
} choir__change_kind;

typedef struct choir__change {
    choir__change_kind kind;
    int64_t number; /* of the trial; -1: an attribute of the study */
    /* BEGIN, TAKE, LEAVE, PAUSE, END: this worker; the latter two do nothing if another one has
     * the trial (END: NULL, unless it has ended). former: TAKE, the dead worker, or the pause
     * (worker.h), that it replaces; after: PAUSE, the pause. All JSON */
    char *worker, *former, *after;
    /* The value of CHOIR__SEGMENTS_KEY, NULL: none. PAUSE, END: the new one; TAKE: the one that
     * the claim rests on, since a worker that was dead may have ended a segment before and died
     * in the next one. */
    char *segments;
    char *given; /* BEGIN: choir_study_enqueue gave this point, JSON; NULL: it did not */
    bool waits;  /* BEGIN: Optuna's enqueue_trial made it */
    choir__stored_param *params; /* BEGIN */
    int param_count;
    int64_t step; /* REPORT */
    int state;    /* END */
    double values[CHOIR_STUDY_OBJECTIVES];
    int value_count; /* REPORT: 1 */
    choir__stored_attribute attribute;
    bool lost; /* out, of BEGIN and TAKE: another worker has the trial */

    struct choir__change *next; /* the writer's (storage.c) */
    bool awaited, done;
    choir_status status;
} choir__change;

choir__change *choir__change_new(choir__change_kind kind, int64_t number);
void choir__change_free(choir__change *c);

/* The attribute of a trial that names its worker, and its value when the worker has left. */
#define CHOIR__WORKER_KEY  "choir:worker"
#define CHOIR__WORKER_LEFT "\"left\""
/* The attribute of a trial that stops and goes on (tune/kept_segments.c). */
#define CHOIR__SEGMENTS_KEY "choir:segments"
/* The attribute of a trial that began with another one's checkpoint, {"trial": 0, "step": 8}.
 */
#define CHOIR__PARENT_KEY "parent"
/* The attribute of a trial whose parameters choir_study_enqueue gave. */
#define CHOIR__GIVEN_KEY "choir:given"
/* Optuna's, of a trial that is given: these parameters. */
#define CHOIR__FIXED_KEY "fixed_params"

#endif
