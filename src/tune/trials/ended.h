/* Notes about trials that have ended, for readers of the study. */
#ifndef CHOIR_TUNE_ENDED_H
#define CHOIR_TUNE_ENDED_H

#include <choir/study.h>

/* Stores how a trial ends as its attributes, before choir_study_tell. why: what follows "it
 * failed because it", or NULL if it did not fail; step: the last one, or -1. */
choir_status choir__trial_note_end(
    choir_trial *trial, const char *why, int64_t step, double seconds);
/* Returns why a trial failed, as choir__trial_note_end stored it, for the caller to free; NULL:
 * it has noted nothing. */
char *choir__trial_why(const choir_trial *trial);
/* Returns the reason of a trial whose metric is not finite, for the caller to free. */
char *choir__trial_no_number(const char *metric, double value);

#endif
