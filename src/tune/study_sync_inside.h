/* The inside of stored studies: what study_sync.c (asking, changes), study_sync_adopt.c (other
 * workers' trials), study_sync_segments.c and study_sync_results.c (trials that are paused and
 * resumed) share. */
#ifndef CHOIR_TUNE_KEPT_INSIDE_H
#define CHOIR_TUNE_KEPT_INSIDE_H

#include <jansson.h>
#include "tune/study_sync.h"
#include "tune/storage/store.h"
#include "tune/study.h"

struct choir__study_sync {
    choir__study_store *store;
    char **dists; /* (space->count) Optuna's JSON; NULL: the study is only looked at */
    int dist_count;
    double refreshed, reading_s; /* choir__now; how long it took */
};

/* --- study_sync_results.c --- */

/* Returns the segments of a trial that have ended; the caller frees them. */
json_t *choir__study_sync_list(const choir__stored_attributes *a);

typedef struct choir__study_sync_result {
    choir_trial_state state;
    int64_t until; /* last step */
    double seconds;
} choir__study_sync_result;

/* Finds the result of segment `part` of a trial; returns false if it has not ended. */
bool choir__study_sync_find_result(
    const choir__stored_trial *r, int64_t part, choir__study_sync_result *found);
/* Returns the last step of the trial's ended segments; -1: no segment has ended. */
int64_t choir__study_sync_last_step(const choir__stored_trial *r);

/* --- study_sync_adopt.c --- */

/* Takes over parameters of a trial that is new here, or that this worker claimed in vain.
 * Errors: argument. */
choir_status choir__study_sync_adopt(
    choir_study *s, choir_trial *t, const choir__stored_trial *r);
/* Takes over attributes. */
void choir__study_sync_take_attributes(choir_trial *t, const choir__stored_trial *r);
/* Takes over the values of a record; false: they are too few. */
bool choir__study_sync_take_values(choir_trial *t, const choir__stored_trial *r);
/* Returns whether nothing is heard any more of the program that runs a trial. *named: it has
 * said who it is. */
bool choir__study_sync_is_abandoned(
    const choir_study *s, const choir__stored_trial *r, bool *named);
/* Passes over the point of a grid that another worker's trial has used. */
void choir__study_sync_pass_over(choir_study *s, const choir_trial *t);

/* Takes over trials of one segment each. Errors: argument. */
choir_status choir__study_sync_adopt_all(choir_study *s, const choir__stored_trials *records);

/* --- study_sync_segments.c --- */

/* Takes over the stored segments, in their order. Errors: argument. */
choir_status choir__study_sync_follow(choir_study *s, const choir__stored_trials *records);
/* Notes the end of this worker's segment in the trial's attributes: the list of segments, and
 * the pause. */
void choir__study_sync_note_segment(choir_trial *t);
/* Notes the pause before the trial's next segment. */
void choir__study_sync_note_pause(choir_trial *t);

/* The facts of a stored study for which Optuna has no column: attributes of the study. */

/* Compares the study with the stored one, and stores the facts that are missing there. Error:
 * argument, another direction, space, sampler, seed or window. */
choir_status choir__facts_agree(choir_study *s, const choir__stored_study *stored,
    const choir_study_opts *opts, choir__study_store *store);

/* Takes directions and space from the storage. Errors: argument, I/O. */
choir_status choir__facts_take(
    choir_study *s, const choir__stored_study *stored, choir__study_store *store);

#endif
