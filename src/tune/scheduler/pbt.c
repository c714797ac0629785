/* Population-based training: `population` trials train side by side. After each `interval`
 * steps, a member that is among the worst `quantile` ends, and a new trial takes its place,
 * which begins with the checkpoint of a random one of the best `quantile` (exploit) and with
 * its parameters, changed (explore): each is drawn anew with the probability `resample`, and
 * otherwise multiplied by 1.2 or 0.8, or for choices moved to a neighbour.
 *
 * So a trial's parameters never change, and the table of trials tells the whole schedule of
 * each member. Members take turns: the order of the segments is that of (generation, member),
 * and results of the generation before decide.
 *
 * Source: Jaderberg et al., "Population based training of neural networks" (2017); the defaults
 * of quantile, resample and factors are Ray Tune's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/scheduler/rules.h"

typedef struct pbt {
    choir__scheduler base;
    int64_t population, interval, max;
    double quantile, resample;
    uint64_t key;
    int64_t *member; /* (population) each member's present trial; -1: it has ended */
    int64_t turns;   /* that were given: (generation, member) */
    int64_t copies;  /* that were begun */
} pbt;

static choir_status open_pbt(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    pbt *p = choir__calloc(1, sizeof *p);
    *p = (pbt){.base.ops = &choir__scheduler_pbt,
        .population = 20,
        .interval = 1,
        .max = 100,
        .quantile = 0.25,
        .resample = 0.25,
        .key = choir__rng_key(opts->seed, "population")};
    const choir__option known[] = {
        {"population", CHOIR__INT, &p->population, 2, 1e6},
        {"interval", CHOIR__INT, &p->interval, 1, 1e15},
        {"max", CHOIR__INT, &p->max, 1, 1e15},
        {"quantile", CHOIR__FLOAT, &p->quantile, 0, 0.5},
        {"resample", CHOIR__FLOAT, &p->resample, 0, 1},
        {NULL},
    };
    choir_status status = choir__options_parse(opts->scheduler, "scheduler pbt", known);
    if (status == CHOIR_OK && opts->window > p->population)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "scheduler pbt: expected a window of at most the population %lld, got %lld",
            (long long)p->population, (long long)opts->window);
    if (status != CHOIR_OK) {
        free(p);
        return status;
    }
    p->member = choir__calloc((size_t)p->population, sizeof *p->member);
    *scheduler = &p->base;
    return CHOIR_OK;
}

/* --- exploit --- */

typedef struct standing {
    int64_t trial;
    double loss;
} standing;

static int compare(const void *a, const void *b)
{
    const standing *x = a, *y = b;
    if (x->loss != y->loss)
        return x->loss < y->loss ? -1 : 1;
    return (x->trial > y->trial) - (x->trial < y->trial);
}

static bool has_reached(const choir_trial *t, int64_t step)
{
    return t->report_count > 0 && t->reports[t->report_count - 1].step >= step;
}

/* Returns the loss at the first report from `step` on; members that are ahead are compared at
 * the same step. */
static double loss_at(const choir__history *h, const choir_trial *t, int64_t step)
{
    for (int64_t i = 0; i < t->report_count; i++)
        if (t->reports[i].step >= step)
            return isnan(t->reports[i].value) ? (double)INFINITY
                                              : t->reports[i].value * h->sign[0];
    return (double)INFINITY;
}

/* Fills in the members that are known to have reached a step, the best first. */
static int64_t stand(const pbt *p, const choir__history *h, int64_t step, standing *table)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->population; i++) {
        int64_t m = p->member[i];
        if (m >= 0 && has_reached(h->trial[m], step))
            table[count++] = (standing){m, loss_at(h, h->trial[m], step)};
    }
    qsort(table, (size_t)count, sizeof *table, compare);
    return count;
}

/* Returns the trial whose checkpoint a member goes on with: its own, or a better one's; -1:
 * there is none. */
static int64_t exploit(pbt *p, const choir__history *h, int64_t member, int64_t step)
{
    standing *table = choir__alloc((size_t)p->population * sizeof *table);
    int64_t own = p->member[member], count = stand(p, h, step, table), rank = count;
    for (int64_t i = 0; i < count; i++)
        if (table[i].trial == own)
            rank = i;
    bool can_go_on = h->trial[own]->state == CHOIR_TRIAL_PRUNED && rank < count;
    int64_t part = (int64_t)(p->quantile * (double)count);
    int64_t parent = can_go_on ? own : -1;
    if (count && (!can_go_on || (part > 0 && rank >= count - part))) {
        choir__draws draws = {.key = choir__mix(p->key, (uint64_t)p->turns)};
        int64_t best = choir__max(part, 1);
        parent = table[(int64_t)(choir__draw(&draws) * (double)best)].trial;
        if (isinf(h->trial[parent]->report_count ? 0 : INFINITY))
            parent = -1;
    }
    free(table);
    return parent;
}

static void begin(pbt *p, int64_t member, bool more, choir__turn *turn, int64_t number)
{
    if (!more) {
        p->population = member; /* as many as there are */
        return;
    }
    *turn = (choir__turn){.kind = CHOIR__TURN_NEW, .trial = -1};
    p->member[member] = number;
    p->turns++;
}

static void next(choir__scheduler *s, const choir__history *h, bool more, choir__turn *turn)
{
    pbt *p = (pbt *)(void *)s;
    *turn = (choir__turn){.kind = CHOIR__TURN_NOTHING};
    if (p->turns < p->population)
        begin(p, p->turns, more, turn, h->count);
    int64_t generation = p->population ? p->turns / p->population : 0;
    while (turn->kind == CHOIR__TURN_NOTHING && p->population &&
           generation * p->interval < p->max) {
        int64_t i = p->turns % p->population, own = p->member[i];
        if (own >= 0 && h->trial[own]->state == CHOIR_TRIAL_RUNNING)
            return; /* a free study only: its result is not there yet */
        int64_t from = own < 0 ? -1 : exploit(p, h, i, generation * p->interval);
        if (from >= 0)
            *turn = (choir__turn){
                .kind = from == own ? CHOIR__TURN_GO_ON : CHOIR__TURN_NEW, .trial = from};
        p->member[i] = from < 0 || from == own ? from : h->count;
        p->turns++;
        generation = (p->turns - (turn->kind != CHOIR__TURN_NOTHING)) / p->population;
    }
    turn->budget = choir__min((generation + 1) * p->interval, p->max);
    turn->last = turn->budget == p->max;
}
