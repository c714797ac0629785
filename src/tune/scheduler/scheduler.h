/* Schedulers: they decide which trial runs next, how far, and which one stops early.
 *
 * A scheduler cuts the work of a study into segments (tune/segment.h). It is asked for one
 * after the other, and told results in an order that the rule of order fixes, so all that it
 * decides is the same however many trials run at once. */
#ifndef CHOIR_TUNE_SCHEDULER_H
#define CHOIR_TUNE_SCHEDULER_H

#include "base/options.h"
#include "tune/sampler/sampler.h"
#include "tune/segment.h"

typedef enum choir__next_segment_kind {
    CHOIR__TURN_NOTHING, /* no segment until more is known */
    CHOIR__TURN_NEW,     /* a new trial */
    CHOIR__TURN_GO_ON,   /* a trial that was stopped at its budget */
} choir__next_segment_kind;

/* The next thing to be done. */
typedef struct choir__next_segment {
    choir__next_segment_kind kind;
    int64_t trial;  /* GO_ON: which one; NEW: the one that it begins as a copy of, or -1 */
    int64_t from;   /* a copy: the step at which it begins */
    int64_t budget; /* CHOIR__NO_BUDGET: to the trial's own end */
    bool last;      /* a trial that reaches this budget is complete */
} choir__next_segment;

typedef struct choir__scheduler choir__scheduler;

typedef struct choir__scheduler_ops {
    const char *name;
    bool pauses; /* trials wait for others, and resume from a checkpoint */
    bool copies; /* new trials begin with the checkpoints of others */
    /* Makes a scheduler from the study's options, whose text is such as "asha:max=100". Errors:
     * argument, unsupported. */
    choir_status (*open)(const choir_study_opts *opts, choir__scheduler **scheduler);
    /* Decides on the next turn. more: new trials of the sampler are possible. */
    void (*next)(choir__scheduler *s, const choir__history *history, bool more,
        choir__next_segment *turn);
    /* Takes the result of a segment. NULL: it needs none. */
    void (*take)(choir__scheduler *s, const choir__history *history,
        const choir__trial_segment *segment);
    /* Returns whether a running trial, which has just reported, is to stop. since: results of
     * later segments are not to be looked at. NULL: none before its budget. */
    bool (*stops)(const choir__scheduler *s, const choir__history *history,
        const choir_trial *trial, int64_t since);
    /* Changes a copied trial's parameters, which are its parent's. NULL: there are no copies.
     */
    void (*explore)(const choir__scheduler *s, const choir__history *history,
        choir__draws *draws, double *params);
    void (*free)(choir__scheduler *s);
} choir__scheduler_ops;

struct choir__scheduler {
    const choir__scheduler_ops *ops;
};

/* Returns the name of scheduler i, or NULL if there are fewer. */
const char *choir__scheduler_name(size_t i);

/* Returns the scheduler that a text like "asha:max=100" names; NULL: it is unknown. */
const choir__scheduler_ops *choir__scheduler_find(const char *text);

/* Opens the scheduler that the study's options name, for a number of objectives. Errors:
 * argument, unsupported. */
choir_status choir__scheduler_open(
    const choir_study_opts *opts, int objectives, choir__scheduler **scheduler);

/* Returns a known trial's value at the end of its last segment, less being better; infinity if
 * it has none. */
double choir__known_loss(const choir__history *history, const choir_trial *trial);

/* The members of the registry of schedulers. */

extern const choir__scheduler_ops choir__scheduler_none, choir__scheduler_asha,
    choir__scheduler_hyperband, choir__scheduler_median, choir__scheduler_percentile,
    choir__scheduler_patience, choir__scheduler_pbt;

#endif
