/* No scheduler: each trial runs to its own end. Schedulers that only stop trials, and let none
 * wait, begin new ones in the same way. */
#include "tune/scheduler/rules.h"

#include <math.h>
#include <stdlib.h>

void choir__next_is_new(
    choir__scheduler *s, const choir__history *history, bool more, choir__next_segment *turn)
{
    (void)s;
    (void)history;
    *turn = (choir__next_segment){.kind = more ? CHOIR__TURN_NEW : CHOIR__TURN_NOTHING,
        .trial = -1,
        .budget = CHOIR__NO_BUDGET};
}

void choir__free_scheduler(choir__scheduler *s)
{
    free(s);
}

double choir__known_loss(const choir__history *h, const choir_trial *t)
{
    double value = (double)NAN;
    if (t->known == CHOIR_TRIAL_COMPLETE)
        value = t->values[0];
    else if (t->known == CHOIR_TRIAL_PRUNED && t->known_reports)
        value = t->reports[t->known_reports - 1].value;
    return isnan(value) ? (double)INFINITY : value * h->sign[0];
}

static choir_status open_none(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    const choir__option known[] = {{NULL}};
    choir_status status = choir__options_parse(opts->scheduler, "scheduler none", known);
    if (status != CHOIR_OK)
        return status;
    choir__scheduler *s = choir__calloc(1, sizeof *s);
    s->ops = &choir__scheduler_none;
    *scheduler = s;
    return CHOIR_OK;
}

const choir__scheduler_ops choir__scheduler_none = {.name = "none",
    .open = open_none,
    .next = choir__next_is_new,
    .free = choir__free_scheduler};
