/* Optuna's journal files as studies and their trials.
 *
 * Each line is a JSON object with an operation; ids count studies and trials of the whole file.
 * Python writes NaN, Infinity and -Infinity, which JSON does not have. */
#ifndef CHOIR_TUNE_STORAGE_JOURNAL_H
#define CHOIR_TUNE_STORAGE_JOURNAL_H

#include "tune/storage/stored_trial.h"

typedef enum choir__journal_op {
    CHOIR__JOURNAL_STUDY,
    CHOIR__JOURNAL_STUDY_DELETED,
    CHOIR__JOURNAL_STUDY_USER,
    CHOIR__JOURNAL_STUDY_SYSTEM,
    CHOIR__JOURNAL_TRIAL,
    CHOIR__JOURNAL_PARAM,
    CHOIR__JOURNAL_STATE,
    CHOIR__JOURNAL_REPORT,
    CHOIR__JOURNAL_TRIAL_USER,
    CHOIR__JOURNAL_TRIAL_SYSTEM,
} choir__journal_op;

/* The attribute of a running trial with the time of its worker's last heartbeat, in seconds. */
#define CHOIR__BEAT_KEY "choir:beat"

typedef struct choir__journal_study {
    choir__stored_study about;
    bool deleted;
    choir__stored_trials trials;
    int64_t *ids; /* (trials.count) the trials' ids */
} choir__journal_study;

typedef struct choir__journal_trial {
    int64_t study, number;
} choir__journal_trial;

typedef struct choir__journal {
    choir__journal_study *study; /* (study_count) by id */
    int64_t study_count;
    choir__map names;            /* the ids of studies that are there */
    choir__journal_trial *trial; /* (trial_count) by id */
    int64_t trial_count;
} choir__journal;

/* Applies a line, without its end. False: it is not a line of Optuna's. */
bool choir__journal_apply(choir__journal *j, const char *line);
/* Returns whether a line that cannot be applied is about a user's attribute alone. Python's
 * texts hold more than JSON's reader takes, such as half of a pair of surrogates, or a key with
 * a zero: readers leave such a line out. */
bool choir__journal_may_skip(const char *line);
/* Returns the id of a study that is there, or -1. */
int64_t choir__journal_find(const choir__journal *j, const char *name);
/* Stores in *to a copy of a trial, whose silence is measured up to now_s. */
void choir__journal_copy(
    const choir__stored_trial *from, double now_s, choir__stored_trial *to);
void choir__journal_clear(choir__journal *j);

#endif
