/* Segments: what the rule of order counts (study.h).
 *
 * A segment is one trial's work up to a budget. Without a scheduler, each trial is one segment.
 * A segment may also be empty: then nothing was to be done at its turn, since all that could go
 * on waited for results that its turn may not know. */
#ifndef CHOIR_TUNE_SEGMENT_H
#define CHOIR_TUNE_SEGMENT_H

#include "tune/trial.h"

#define CHOIR__NO_BUDGET INT64_MAX

typedef struct choir__segment {
    int64_t trial; /* -1: empty */
    int64_t budget;
    bool last; /* a trial that reaches this budget is complete */
    bool ended;
    choir_trial_state state; /* of the trial, at the segment's end */
    int64_t reports;
} choir__segment;

#endif
