/* Rungs: the trials that have reached a budget, in the order of their results. */
#include <math.h>

#include "tune/scheduler/rules.h"

/* A trial that ended before the budget, by itself or by a failure, cannot be promoted. */
static bool reached(const choir_trial *t, int64_t budget)
{
    return t->known == CHOIR_TRIAL_PRUNED && t->known_reports > 0 &&
           t->reports[t->known_reports - 1].step >= budget;
}

static bool before(const choir__rung_entry *a, const choir__rung_entry *b)
{
    return a->loss != b->loss ? a->loss < b->loss : a->trial < b->trial;
}

void choir__rung_add(
    choir__rung *r, const choir__history *h, const choir__trial_segment *segment)
{
    const choir_trial *t = h->trial[segment->trial];
    choir__rung_entry e = {.trial = segment->trial, .loss = choir__known_loss(h, t)};
    e.promoted = !reached(t, r->budget) || isinf(e.loss);
    CHOIR__GROW(r->entry, r->count);
    int64_t at = r->count++;
    for (; at > 0 && before(&e, &r->entry[at - 1]); at--)
        r->entry[at] = r->entry[at - 1];
    r->entry[at] = e;
}

int64_t choir__rung_promote(choir__rung *r, int64_t places)
{
    for (int64_t i = 0; i < choir__min(places, r->count); i++) {
        if (r->entry[i].promoted)
            continue;
        r->entry[i].promoted = true;
        return r->entry[i].trial;
    }
    return -1;
}

choir_status choir__ladder_parse(const char *text, const char *what, choir__ladder *ladder)
{
    const choir__option known[] = {
        {"min", CHOIR__INT, &ladder->min, 1, 1e15},
        {"max", CHOIR__INT, &ladder->max, 1, 1e15},
        {"eta", CHOIR__INT, &ladder->eta, 2, 1000},
        {NULL},
    };
    choir_status status = choir__options_parse(text, what, known);
    if (status == CHOIR_OK && ladder->min > ladder->max)
        status = choir__error(CHOIR_ERR_ARGUMENT, "%s: expected min <= max, got %lld > %lld",
            what, (long long)ladder->min, (long long)ladder->max);
    return status;
}
