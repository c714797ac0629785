/* Segments: what the rule of order counts (study.h).
 *
 * A segment is one trial's work up to a budget. Without a scheduler, each trial is one segment.
 * A segment may also be empty: then nothing could be done at its turn, since all trials that
 * could be resumed waited for results that its turn may not know. */
#ifndef CHOIR_TUNE_SEGMENT_H
#define CHOIR_TUNE_SEGMENT_H

#include "tune/trial.h"

#define CHOIR__NO_BUDGET INT64_MAX

typedef struct choir__trial_segment {
    int64_t trial; /* -1: empty */
    int64_t budget;
    bool last; /* a trial that reaches this budget is complete */
    bool ended;
    choir_trial_state state; /* state of the trial at the segment's end */
    int64_t reports;
    double began, seconds; /* choir__now, and until its end, on the machine that ran it */
} choir__trial_segment;

/* A segment as people see it. */
typedef struct choir__segment_view {
    choir_trial *trial; /* NULL: it is empty */
    choir_trial_state state;
    double value; /* NaN: none */
    int64_t step; /* step of the last report; -1: no report */
    double seconds;
} choir__segment_view;

/* Returns how many segments have begun. */
int64_t choir__study_segments(const choir_study *study);
choir__segment_view choir__study_segment(const choir_study *study, int64_t n);

/* Replaces a trial's last step, and its seconds, by the values over all its ended parts, as a
 * storage has them (study_sync_results.c). Does nothing for trials of one part. */
void choir__trial_parts(const choir_trial *trial, int64_t *step, double *seconds);

#endif
