/* Asynchronous successive halving: a trial gets eta times its budget as soon as it is among the
 * best 1/eta of the trials that have reached it; where none is, a new trial begins.
 *
 *     budgets: min, min eta, min eta^2, ..., max
 *
 * Source: Li et al., "A system for massively parallel hyperparameter tuning" (2020),
 * algorithm 2. */
#include <stdlib.h>

#include "tune/scheduler/rules.h"

enum { MOST_RUNGS = 64 };

typedef struct asha {
    choir__scheduler base;
    choir__ladder ladder;
    choir__rung rung[MOST_RUNGS]; /* (count) */
    int count;
} asha;

static choir_status open_asha(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    asha *a = choir__calloc(1, sizeof *a);
    a->base.ops = &choir__scheduler_asha;
    a->ladder = (choir__ladder){.min = 1, .max = 100, .eta = 4};
    choir_status status = choir__ladder_parse(opts->scheduler, "scheduler asha", &a->ladder);
    if (status != CHOIR_OK) {
        free(a);
        return status;
    }
    int64_t budget = a->ladder.min;
    for (; budget < a->ladder.max; budget *= a->ladder.eta)
        a->rung[a->count++].budget = budget;
    a->rung[a->count++].budget = a->ladder.max;
    *scheduler = &a->base;
    return CHOIR_OK;
}

static void next(
    choir__scheduler *s, const choir__history *history, bool more, choir__next_segment *turn)
{
    (void)history;
    asha *a = (asha *)(void *)s;
    *turn = (choir__next_segment){.kind = CHOIR__TURN_NOTHING, .trial = -1};
    for (int k = a->count - 2; k >= 0 && turn->trial < 0; k--) {
        turn->trial = choir__rung_promote(&a->rung[k], a->rung[k].count / a->ladder.eta);
        turn->kind = turn->trial < 0 ? CHOIR__TURN_NOTHING : CHOIR__TURN_GO_ON;
        turn->budget = a->rung[k + 1].budget;
    }
    if (turn->kind == CHOIR__TURN_NOTHING && more) {
        turn->kind = CHOIR__TURN_NEW;
        turn->budget = a->rung[0].budget;
    }
    turn->last = turn->budget == a->ladder.max;
}

static void take(
    choir__scheduler *s, const choir__history *h, const choir__trial_segment *segment)
{
    asha *a = (asha *)(void *)s;
    for (int k = 0; k < a->count; k++)
        if (a->rung[k].budget == segment->budget)
            choir__rung_add(&a->rung[k], h, segment);
}

static void free_asha(choir__scheduler *s)
{
    asha *a = (asha *)(void *)s;
    for (int k = 0; k < a->count; k++)
        free(a->rung[k].entry);
    free(a);
}

const choir__scheduler_ops choir__scheduler_asha = {.name = "asha",
    .pauses = true,
    .open = open_asha,
    .next = next,
    .take = take,
    .free = free_asha};
