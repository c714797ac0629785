/* Notes about trials that have ended, for readers of the study. */
#ifndef CHOIR_TUNE_ENDED_H
#define CHOIR_TUNE_ENDED_H

#include <jansson.h>

#include <choir/study.h>

/* Returns a text as JSON, in which U+FFFD stands for bytes that are not UTF-8. */
json_t *choir__trial_text_json(const char *text);

/* Stores how a trial ends as its attributes, before choir_study_tell. why: it failed, or NULL;
 * step: the last one, or -1. */
choir_status choir__trial_note_end(
    choir_trial *trial, const char *why, int64_t step, double seconds);

#endif
