/* Notes about trials that have ended, for readers of the study. */
#ifndef CHOIR_TUNE_ENDED_H
#define CHOIR_TUNE_ENDED_H

#include <choir/study.h>

/* Stores how a trial ends as its attributes, before choir_study_tell. why: it failed, or NULL;
 * step: the last one, or -1. */
choir_status choir__trial_note_end(
    choir_trial *trial, const char *why, int64_t step, double seconds);

#endif
