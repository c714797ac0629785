/* Hyperband: brackets of successive halving that begin with many trials of a small budget, or
 * with few of a large one. With the sampler bohb, this is BOHB.
 *
 *     bracket s = S, S - 1, ..., 0, S, ... where S = floor(log_eta(max / min))
 *     rung 0:  n = ceil((S + 1) / (s + 1) eta^s) trials of max / eta^s steps
 *     rung k:  the best floor(n / eta^k) of rung k - 1, once all of them have ended
 *
 * While a bracket waits for results, the next one begins.
 *
 * Sources: Li et al., "Hyperband" (2018); Falkner et al., "BOHB" (2018), whose HpBandSter
 * begins brackets in this way. */
#include <stdlib.h>

#include "tune/scheduler/rules.h"

enum { MOST_RUNGS = 64 };

typedef struct bracket {
    int rungs;
    int64_t begun;                /* trials of rung 0 */
    int64_t places[MOST_RUNGS];   /* (rungs) trials in the end */
    int64_t promoted[MOST_RUNGS]; /* (rungs) trials promoted to the next rung */
    choir__rung rung[MOST_RUNGS]; /* (rungs) */
} bracket;

typedef struct hyperband {
    choir__scheduler base;
    choir__ladder ladder;
    int most;          /* S */
    bracket **bracket; /* (count) */
    int64_t count;
    int64_t *home; /* (trials) each trial's bracket */
    int64_t trials;
} hyperband;

static int64_t power(int64_t eta, int exponent)
{
    int64_t p = 1;
    while (exponent-- > 0)
        p *= eta;
    return p;
}

static choir_status open_hyperband(const choir_study_opts *opts, choir__scheduler **scheduler)
{
    hyperband *h = choir__calloc(1, sizeof *h);
    h->base.ops = &choir__scheduler_hyperband;
    h->ladder = (choir__ladder){.min = 1, .max = 81, .eta = 3};
    choir_status status =
        choir__ladder_parse(opts->scheduler, "scheduler hyperband", &h->ladder);
    if (status != CHOIR_OK) {
        free(h);
        return status;
    }
    for (int64_t b = h->ladder.max / h->ladder.eta; b >= h->ladder.min; b /= h->ladder.eta)
        h->most++;
    *scheduler = &h->base;
    return CHOIR_OK;
}

static void add_bracket(hyperband *h)
{
    bracket *b = choir__calloc(1, sizeof *b);
    int s = h->most - (int)(h->count % (h->most + 1));
    int64_t eta_s = power(h->ladder.eta, s), all = (h->most + 1) * eta_s;
    b->rungs = s + 1;
    b->places[0] = (all + s) / (s + 1);
    for (int k = 0; k <= s; k++) {
        b->places[k] = choir__max(1, b->places[0] / power(h->ladder.eta, k));
        b->rung[k].budget =
            choir__max(h->ladder.min, h->ladder.max / power(h->ladder.eta, s - k));
    }
    CHOIR__GROW(h->bracket, h->count);
    h->bracket[h->count++] = b;
}

/* Promotes a trial of a rung that is complete; returns it, or -1. A rung has fewer places than
 * were planned if there were no more trials. */
static int64_t promote(bracket *b, int k)
{
    int64_t expected = k ? b->promoted[k - 1] : b->begun;
    bool all_begun = k ? b->promoted[k - 1] == b->places[k] : b->begun == b->places[0];
    if (!all_begun || b->rung[k].count < expected || b->promoted[k] == b->places[k + 1])
        return -1;
    int64_t trial = choir__rung_promote(&b->rung[k], b->rung[k].count);
    if (trial < 0)
        b->places[k + 1] = b->promoted[k]; /* the others cannot be promoted */
    else
        b->promoted[k]++;
    return trial;
}

/* Closes a bracket to which no new trials will come, so rung 0 keeps the number that it has. */
static void close_bracket(const hyperband *h, bracket *b)
{
    if (b->begun == b->places[0])
        return;
    for (int k = 0; k < b->rungs; k++)
        b->places[k] = choir__min(b->begun, choir__max(1, b->begun / power(h->ladder.eta, k)));
}

static bool turn_of(hyperband *h, int64_t at, bool more, choir__next_segment *turn)
{
    bracket *b = h->bracket[at];
    if (!more)
        close_bracket(h, b);
    for (int k = b->rungs - 2; k >= 0; k--) {
        int64_t trial = promote(b, k);
        if (trial < 0)
            continue;
        *turn = (choir__next_segment){
            .kind = CHOIR__TURN_GO_ON, .trial = trial, .budget = b->rung[k + 1].budget};
        return true;
    }
    if (b->begun == b->places[0] || !more)
        return false;
    *turn = (choir__next_segment){
        .kind = CHOIR__TURN_NEW, .trial = -1, .budget = b->rung[0].budget};
    b->begun++;
    CHOIR__GROW(h->home, h->trials);
    h->home[h->trials++] = at;
    return true;
}

static void next(
    choir__scheduler *s, const choir__history *history, bool more, choir__next_segment *turn)
{
    (void)history;
    hyperband *h = (hyperband *)(void *)s;
    *turn = (choir__next_segment){.kind = CHOIR__TURN_NOTHING};
    bool found = false;
    for (int64_t i = 0; i < h->count && !found; i++)
        found = turn_of(h, i, more, turn);
    if (!found && more) {
        add_bracket(h);
        turn_of(h, h->count - 1, more, turn);
    }
    turn->last = turn->budget == h->ladder.max;
}

static void take(
    choir__scheduler *s, const choir__history *history, const choir__trial_segment *g)
{
    hyperband *h = (hyperband *)(void *)s;
    bracket *b = h->bracket[h->home[g->trial]];
    for (int k = 0; k < b->rungs; k++)
        if (b->rung[k].budget == g->budget)
            choir__rung_add(&b->rung[k], history, g);
}

static void free_hyperband(choir__scheduler *s)
{
    hyperband *h = (hyperband *)(void *)s;
    for (int64_t i = 0; i < h->count; i++) {
        for (int k = 0; k < h->bracket[i]->rungs; k++)
            free(h->bracket[i]->rung[k].entry);
        free(h->bracket[i]);
    }
    free(h->bracket);
    free(h->home);
    free(h);
}

const choir__scheduler_ops choir__scheduler_hyperband = {.name = "hyperband",
    .pauses = true,
    .open = open_hyperband,
    .next = next,
    .take = take,
    .free = free_hyperband};
