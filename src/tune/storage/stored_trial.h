/* Trials as storages hold them, and changes of them: what the backends read and write.
 *
 * Names and values are Optuna's: a parameter has an internal value (for a choice, its index)
 * and its distribution as JSON; an attribute is JSON under a key. */
#ifndef CHOIR_TUNE_STORAGE_STORED_TRIAL_H
#define CHOIR_TUNE_STORAGE_STORED_TRIAL_H

#include <choir/study.h>

#include "tune/storage/attributes.h"
#include "tune/trial.h"

/* Optuna's state WAITING, of a trial to be run later; extends choir_trial_state. */
enum { CHOIR__STORED_WAITING = CHOIR_TRIAL_FAIL + 1 };

typedef struct choir__stored_param {
    char *name, *dist;
    double value;
} choir__stored_param;

typedef struct choir__stored_trial {
    int64_t number;
    int state;
    double silent_s; /* seconds since the last heartbeat; NaN: no heartbeat */
    choir__stored_param *params;
    int param_count;
    double values[CHOIR_STUDY_OBJECTIVES];
    int value_count;
    choir__report *reports; /* sorted by step, once the record is settled */
    int64_t report_count;
    bool mixed; /* reports are not sorted by step yet */
    choir__stored_attributes attributes;
} choir__stored_trial;

typedef struct choir__stored_trials {
    choir__stored_trial *at; /* (count) by number */
    int64_t count;
} choir__stored_trials;

/* A study, as it is stored. */
typedef struct choir__stored_study {
    char *name;
    bool most[CHOIR_STUDY_OBJECTIVES]; /* larger is better */
    int objectives;
    choir__stored_attributes attributes;
} choir__stored_study;

/* Appends a new record and returns it. */
choir__stored_trial *choir__stored_trials_add(choir__stored_trials *r, int64_t number);
/* Returns the record of a trial, or NULL. */
choir__stored_trial *choir__stored_trials_find(const choir__stored_trials *r, int64_t number);
void choir__stored_trials_free(choir__stored_trials *r);

/* Add a parameter or a report; the texts are copied. A later report of the same step replaces
 * the earlier one. */
void choir__stored_trial_param(
    choir__stored_trial *r, const char *name, const char *dist, double value);
void choir__stored_trial_report(choir__stored_trial *r, int64_t step, double value);
/* Sorts the reports by step and keeps the last report of each step. Called by store.c. */
void choir__stored_trial_settle(choir__stored_trial *r);
void choir__stored_study_free(choir__stored_study *s);

/* Return the name of a state, such as "RUNNING", and the state of a name; -1: unknown. */
const char *choir__stored_state_name(int state);
int choir__stored_state(const char *name);

/* --- changes --- */

typedef enum choir__change_kind {
    CHOIR__CHANGE_BEGIN, /* creates the trial, or resumes a waiting one, as RUNNING */
    CHOIR__CHANGE_TAKE,  /* this worker takes over a trial whose worker is dead */
    CHOIR__CHANGE_REPORT,
    CHOIR__CHANGE_ATTRIBUTE,
    CHOIR__CHANGE_PAUSE, /* a segment has ended; the trial may be resumed */
    CHOIR__CHANGE_END,
    CHOIR__CHANGE_BEAT,  /* the trial's worker is alive */
    CHOIR__CHANGE_LEAVE, /* the trial's worker gives it up */
} choir__change_kind;

typedef struct choir__change {
    choir__change_kind kind;
    int64_t number; /* number of the trial; -1: an attribute of the study */
    /* worker: this worker, for BEGIN, TAKE, LEAVE, PAUSE and END; PAUSE and END do nothing if
     * another worker has the trial (END: worker may be NULL, then it does nothing if the trial
     * has ended). former: for TAKE, the dead worker or the pause (worker.h) that it replaces.
     * after: for PAUSE, the pause. All JSON */
    char *worker, *former, *after;
    /* The value of CHOIR__SEGMENTS_KEY; NULL: none. PAUSE, END: the new value; TAKE: the value
     * that the claim is based on, since a dead worker may have ended a segment and died in the
     * next one. */
    char *segments;
    char *given; /* BEGIN: point that choir_study_enqueue gave, as JSON; NULL: a suggested point
                  */
    bool waits;  /* BEGIN: Optuna's enqueue_trial made it */
    choir__stored_param *params; /* BEGIN */
    int param_count;
    int64_t step; /* REPORT */
    int state;    /* END */
    double values[CHOIR_STUDY_OBJECTIVES];
    int value_count; /* REPORT: 1 */
    choir__stored_attribute attribute;
    bool lost; /* result of BEGIN and TAKE: another worker has the trial */

    struct choir__change *next; /* members of the writer (storage.c) */
    bool awaited, done;
    choir_status status;
} choir__change;

choir__change *choir__change_new(choir__change_kind kind, int64_t number);
void choir__change_free(choir__change *c);

/* The attribute of a trial that names its worker, and its value when the worker has left. */
#define CHOIR__WORKER_KEY  "choir:worker"
#define CHOIR__WORKER_LEFT "\"left\""
/* The attribute of a trial that is paused and resumed (tune/study_sync_segments.c). */
#define CHOIR__SEGMENTS_KEY "choir:segments"
/* The attribute of a trial that began with another one's checkpoint, {"trial": 0, "step": 8}.
 */
#define CHOIR__PARENT_KEY "parent"
/* The attribute of a trial whose parameters choir_study_enqueue gave. */
#define CHOIR__GIVEN_KEY "choir:given"
/* Optuna's attribute of an enqueued trial: its given parameters. */
#define CHOIR__FIXED_KEY "fixed_params"

#endif
