/* Population-based training: `population` trials train side by side. After each `interval`
 * steps, a member that is among the worst `quantile` ends, and a new trial takes its place,
 * which begins with the checkpoint of a random one of the best `quantile` (exploit) and with
 * its parameters, changed (explore): each is drawn again with the probability `resample`, and
 * otherwise multiplied by 1.2 or 0.8, or for choices moved to a neighbour.
 *
 * So a trial's parameters never change, and the table of trials tells the whole schedule of
 * each member. Members take turns: segments are ordered by (generation, member), and results of
 * the generation before decide.
 *
 * Source: Jaderberg et al., "Population based training of neural networks" (2017); the defaults
 * of quantile, resample and factors are Ray Tune's. */
#include <math.h>
#include <stdlib.h>

#include "tune/scheduler/rules.h"

typedef struct pbt {
    choir__scheduler base;
    int64_t population, interval, max;
    double quantile, resample;
    uint64_t key;
    struct {
        int64_t trial;  /* the present one; -1: it has ended */
        int64_t before; /* value in the generation before */
        int64_t known;  /* generations whose results are known */
    } * member;         /* (population) */
    int64_t turns;      /* turns that were given: (generation, member) */
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
    if (status == CHOIR_OK && opts->window > p->population / 2)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "scheduler pbt: expected a window of at most half of the population %lld, got %lld: "
            "members are compared with those whose results are known",
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

/* Members that are ahead are compared at the same step. */
static double loss_at(const choir__history *h, const choir_trial *t, int64_t step)
{
    double value = choir__report_from(t, step)->value;
    return isnan(value) ? (double)INFINITY : value * h->sign[0];
}

static bool can_go_on(const choir__history *h, int64_t trial, int64_t step)
{
    return h->trial[trial]->known == CHOIR_TRIAL_PRUNED &&
           choir__report_from(h->trial[trial], step);
}

/* Fills in the members that are known to have reached a step, the best first; also those that
 * are complete by now, whose checkpoints of that step are there. Members that had their turn at
 * this step count as they were before it: a copy that one of them made is no result of its own.
 */
static int64_t stand(const pbt *p, const choir__history *h, int64_t step, choir__ranked *table)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->population; i++) {
        bool had_turn = i < p->turns % p->population;
        int64_t m = had_turn ? p->member[i].before : p->member[i].trial;
        bool failed = m < 0 || h->trial[m]->known == CHOIR_TRIAL_FAIL;
        if (!failed && choir__report_from(h->trial[m], step))
            table[count++] = (choir__ranked){m, loss_at(h, h->trial[m], step)};
    }
    qsort(table, (size_t)count, sizeof *table, choir__by_value);
    return count;
}

/* Returns the trial whose checkpoint a member continues with: its own, or a better one's; -1:
 * none. */
static int64_t exploit(pbt *p, const choir__history *h, int64_t member, int64_t step)
{
    choir__ranked *table = choir__alloc((size_t)p->population * sizeof *table);
    int64_t own = p->member[member].trial, count = stand(p, h, step, table), rank = count;
    for (int64_t i = 0; i < count; i++)
        if (table[i].number == own)
            rank = i;
    bool goes_on = can_go_on(h, own, step);
    int64_t part = (int64_t)ceil(p->quantile * (double)count);
    part = choir__min(part, count / 2);
    int64_t parent = goes_on ? own : -1;
    if (count && (!goes_on || (part > 0 && rank >= count - part))) {
        choir__draws draws = {.key = choir__mix(p->key, (uint64_t)p->turns)};
        int64_t best = choir__max(part, 1);
        parent = table[(int64_t)(choir__draw(&draws) * (double)best)].number;
    }
    free(table);
    return parent;
}

/* Decides on a member's next generation; returns false if its last result is not known yet. A
 * copy is a new trial, but none of the sampler's, which may have no more. */
static bool next_of(pbt *p, const choir__history *h, int64_t i, choir__next_segment *turn)
{
    int64_t generation = p->turns / p->population, own = p->member[i].trial;
    if (own >= 0 && p->member[i].known < generation)
        return false;
    int64_t step = generation * p->interval, from = own < 0 ? -1 : exploit(p, h, i, step);
    if (from >= 0 && from != own && h->most && h->count >= h->most)
        from = can_go_on(h, own, step) ? own : -1;
    if (from >= 0)
        *turn = (choir__next_segment){.kind = from == own ? CHOIR__TURN_GO_ON : CHOIR__TURN_NEW,
            .trial = from,
            .from = choir__report_from(h->trial[from], step)->step};
    p->member[i].before = own;
    p->member[i].trial = from < 0 || from == own ? from : h->count;
    return true;
}

static void next(
    choir__scheduler *s, const choir__history *h, bool more, choir__next_segment *turn)
{
    pbt *p = (pbt *)(void *)s;
    *turn = (choir__next_segment){.kind = CHOIR__TURN_NOTHING};
    int64_t generation = 0, left = p->population + 1; /* a round without a member ends it */
    while (turn->kind == CHOIR__TURN_NOTHING && p->population) {
        int64_t i = p->turns % p->population;
        generation = p->turns / p->population;
        if (generation * p->interval >= p->max || !left--)
            return;
        if (!generation && !more) {
            p->population = p->turns; /* as many members as exist */
            continue;
        }
        if (!generation) {
            *turn = (choir__next_segment){.kind = CHOIR__TURN_NEW, .trial = -1};
            p->member[i].trial = h->count;
        } else if (!next_of(p, h, i, turn)) {
            return;
        }
        p->turns++;
    }
    turn->budget = choir__min((generation + 1) * p->interval, p->max);
    turn->last = turn->budget == p->max;
}

static void take(
    choir__scheduler *s, const choir__history *h, const choir__trial_segment *segment)
{
    (void)h;
    pbt *p = (pbt *)(void *)s;
    for (int64_t i = 0; i < p->population; i++)
        if (p->member[i].trial == segment->trial)
            p->member[i].known = (segment->budget + p->interval - 1) / p->interval;
}

/* --- explore --- */

static double changed(const choir__dist *d, double value, double draw)
{
    double factor = draw < 0.5 ? 0.8 : 1.2;
    if (d->kind == CHOIR__CHOICE) {
        double to = value + (draw < 0.5 ? -1 : 1);
        return fmin(fmax(to, 0), d->choice_count - 1);
    }
    double to = value * factor;
    if (d->kind == CHOIR__INTEGER && fabs(to - value) < d->step)
        to = value + (draw < 0.5 ? -d->step : d->step);
    if (d->kind != CHOIR__NORMAL)
        to = fmin(fmax(to, d->low), d->high);
    return choir__from_inner(d, choir__to_inner(d, to));
}

static void explore(
    const choir__scheduler *s, const choir__history *h, choir__draws *draws, double *params)
{
    const pbt *p = (const pbt *)(const void *)s;
    for (int i = 0; i < h->space->count; i++) {
        const choir__dist *d = &h->space->param[i].dist;
        double resample = choir__draw(draws), draw = choir__draw(draws);
        if (!choir__space_active(h->space, i, params))
            params[i] = (double)NAN;
        else if (resample < p->resample || isnan(params[i]))
            params[i] = choir__dist_draw(d, draws);
        else
            params[i] = changed(d, params[i], draw);
    }
}

static void free_pbt(choir__scheduler *s)
{
    free(((pbt *)(void *)s)->member);
    free(s);
}

const choir__scheduler_ops choir__scheduler_pbt = {.name = "pbt",
    .pauses = true,
    .copies = true,
    .open = open_pbt,
    .next = next,
    .take = take,
    .explore = explore,
    .free = free_pbt};
