/* choir tune: runs trials, at most `parallel` at once, until there are enough.
 *
 * One loop sleeps until a trial writes or ends, a time is over, or a signal comes. A trial that
 * failed is run again with the same parameters, `retries` times. Outcomes are printed in the
 * order of the trials' numbers, so that the output is the same however many run at once. */
#include "cli/tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/say.h"
#include "tune/trials/checkpoints.h"
#include "tune/kept.h"

enum { INTERRUPTED = 128, OTHERS_MS = 100 }; /* between looks at other processes' trials */

/* A place where a trial runs. */
typedef struct slot {
    bool busy;
    int64_t attempt, part;
    choir__running running;
} slot;

/* A part of a trial that stops and goes on. */
typedef struct part {
    bool ended;
    choir__outcome outcome;
} part;

typedef struct search {
    const choir__search *opts;
    slot *slot;            /* (parallel) */
    struct pollfd *polled; /* for all slots, and the signals */
    part *part;            /* (part_count) in the order in which they began */
    int64_t part_count, part_room;
    int64_t printed;  /* trials, or parts */
    int64_t failures; /* of these, in a row */
    char *why;        /* the last one failed */
    int busy;
    bool gave_up; /* too many failures */
    int signal;   /* that ends the search; 0: none */
    choir_status status;
} search;

/* --- one trial --- */

static void start(search *s, slot *at, choir_trial *trial)
{
    at->busy = true;
    s->busy++;
    s->status = choir__running_start(&at->running, &s->opts->job, trial);
}

static int64_t begin_part(search *s, const choir_trial *trial)
{
    if (s->part_count == s->part_room) {
        s->part_room = s->part_room ? 2 * s->part_room : 64;
        s->part = choir__realloc(s->part, (size_t)s->part_room * sizeof *s->part);
    }
    s->part[s->part_count] = (part){.outcome.trial = trial};
    return s->part_count++;
}

/* Tells the study how a trial, or a part of it, has ended. */
static void tell(search *s, slot *at, choir_trial *trial, choir_trial_state state, double value)
{
    int64_t number = choir_trial_number(trial), step = choir_trial_last_step(trial);
    choir__outcome *o = &s->part[at->part].outcome;
    if (s->opts->job.copies && state == CHOIR_TRIAL_PRUNED)
        s->status = choir__checkpoint_keep(s->opts->job.dir, number, step);
    if (s->status == CHOIR_OK)
        s->status = choir__outcome_note(trial, o->why, step, o->seconds);
    if (s->status == CHOIR_OK)
        s->status = choir_study_tell(s->opts->study, trial, state, &value, 1);
    o->step = step;
    o->state = choir_trial_result(trial);
    o->value = choir_trial_value(trial, 0);
    if (o->state == CHOIR_TRIAL_FAIL && !o->why)
        o->why = choir__format("%s is not a number", s->opts->job.metric);
    s->part[at->part].ended = true;
}

/* Begins the next trial, or goes on with one; returns false if there is none for now. */
static bool begin(search *s, slot *at)
{
    choir_trial *trial;
    if (s->gave_up || s->signal || !choir_study_ready(s->opts->study))
        return false;
    s->status = choir_study_ask(s->opts->study, &trial);
    if (s->status == CHOIR_ERR_END || s->status == CHOIR_ERR_STATE) {
        s->status = CHOIR_OK; /* no more, or not before another process's trial ends */
        return false;
    }
    if (s->status != CHOIR_OK)
        return false;
    at->attempt = 0;
    at->part = begin_part(s, trial);
    if (choir_trial_should_stop(trial)) /* it ran as far as this before it was stopped */
        tell(s, at, trial, CHOIR_TRIAL_PRUNED, (double)NAN);
    else
        start(s, at, trial);
    return true;
}

static void fill(search *s)
{
    for (int64_t i = 0; i < s->opts->parallel; i++)
        while (!s->slot[i].busy && s->status == CHOIR_OK)
            if (!begin(s, &s->slot[i]))
                return;
}

static void note_printed(search *s, choir__outcome *o)
{
    s->printed++;
    choir__search_print_trial(s->opts, o);
    s->failures = o->why ? s->failures + 1 : 0;
    s->gave_up = s->failures == s->opts->failures_max;
    free(s->why);
    s->why = o->why;
    o->why = NULL;
}

/* Prints outcomes in order, and counts failures in a row. After the last one that is allowed,
 * trials that ran beside it count no more. */
static void print(search *s)
{
    while (s->opts->pauses && !s->gave_up && s->printed < s->part_count &&
           s->part[s->printed].ended)
        note_printed(s, &s->part[s->printed].outcome);
    while (!s->opts->pauses && !s->gave_up && s->printed < choir_study_count(s->opts->study)) {
        const choir_trial *t = choir_study_trial(s->opts->study, s->printed);
        if (choir_trial_result(t) == CHOIR_TRIAL_RUNNING)
            return;
        choir__outcome o = choir__outcome_of(t);
        note_printed(s, &o);
    }
}

static void end(search *s, slot *at)
{
    choir__running *r = &at->running;
    choir_trial *trial = r->trial;
    char *why;
    choir_trial_state state = choir__running_end(r, &why);
    double value = r->value, seconds = choir__now() - r->started;
    choir__running_free(r);
    at->busy = false;
    s->busy--;
    if (s->signal) { /* the trial was stopped by us: it has no result */
        free(why);
        return;
    }
    if (state == CHOIR_TRIAL_FAIL && at->attempt++ < s->opts->retries && !s->gave_up) {
        free(why);
        start(s, at, trial);
        return;
    }
    s->part[at->part].outcome.why = why;
    s->part[at->part].outcome.seconds = seconds;
    tell(s, at, trial, state, value);
    print(s);
}

/* --- the loop --- */

/* Returns the number of outcomes of all that has begun. */
static int64_t expected(const search *s)
{
    return s->opts->pauses ? s->part_count : choir_study_count(s->opts->study);
}

static void take_signals(search *s)
{
    for (choir__signal next; choir__signals_next(&next);) {
        for (int64_t i = 0; i < s->opts->parallel; i++) {
            if (!s->slot[i].busy)
                continue;
            choir__family_stop(&s->slot[i].running.family);
            if (s->signal) /* the second one: no patience */
                choir__family_signal(&s->slot[i].running.family, SIGKILL);
        }
        s->signal = next.number;
    }
}

static void sleep_until_something(search *s)
{
    bool others = s->busy < s->opts->parallel && s->printed < expected(s);
    int count = 0, patience = s->opts->stored && others ? OTHERS_MS : -1;
    for (int64_t i = 0; i < s->opts->parallel; i++) {
        if (!s->slot[i].busy)
            continue;
        int most = choir__running_patience(&s->slot[i].running);
        count += choir__running_poll(&s->slot[i].running, s->polled + count);
        if (most >= 0 && (patience < 0 || most < patience))
            patience = most;
    }
    s->polled[count++] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
    poll(s->polled, (nfds_t)count, patience);
}

static void loop(search *s)
{
    for (;;) {
        fill(s);
        if (s->status == CHOIR_OK)
            print(s);
        bool all = s->printed == expected(s);
        if (s->status != CHOIR_OK || (!s->busy && (all || s->gave_up || s->signal)))
            return;
        sleep_until_something(s);
        take_signals(s);
        for (int64_t i = 0; i < s->opts->parallel && s->status == CHOIR_OK; i++)
            if (s->slot[i].busy && choir__running_look(&s->slot[i].running))
                end(s, &s->slot[i]);
    }
}

/* Returns whether outcome a is better than b: complete, or further, or by its value. */
static bool is_better(const search *s, const choir__outcome *a, const choir__outcome *b)
{
    bool done = a->state == CHOIR_TRIAL_COMPLETE;
    if (done != (b->state == CHOIR_TRIAL_COMPLETE))
        return done;
    if (!done && a->step != b->step)
        return a->step > b->step;
    return s->opts->most ? a->value > b->value : a->value < b->value;
}

/* Returns the best one of the outcomes that were printed. Those of trials that ran beside the
 * last failure that was allowed are none. */
static const choir_trial *best_printed(search *s)
{
    choir__outcome best = {.trial = NULL};
    for (int64_t i = 0; i < s->printed; i++) {
        choir__outcome o = s->opts->pauses
                               ? s->part[i].outcome
                               : choir__outcome_of(choir_study_trial(s->opts->study, i));
        if (!s->opts->pauses)
            free(o.why);
        if (o.state != CHOIR_TRIAL_FAIL && !isnan(o.value) &&
            (!best.trial || is_better(s, &o, &best)))
            best = o;
    }
    return best.trial;
}

static int finish(search *s)
{
    const choir_trial *best = s->gave_up ? best_printed(s) : choir_study_best(s->opts->study);
    for (int64_t i = 0; i < s->opts->parallel; i++)
        if (s->slot[i].busy)
            choir__running_free(&s->slot[i].running);
    if (s->status != CHOIR_OK)
        return choir__cli_fail();
    if (best)
        choir__search_print_best(s->opts, best);
    if (s->signal)
        return INTERRUPTED + s->signal;
    if (s->gave_up)
        fprintf(stderr,
            "choir tune: %lld trials in a row have failed, the last one because it %s "
            "(--max-failures)\n",
            (long long)s->failures, s->why);
    else if (!best)
        fprintf(stderr, "choir tune: no trial has a value\n");
    return s->gave_up || !best ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}

int choir__search_run(const choir__search *o)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    search s = {.opts = o};
    s.slot = choir__calloc((size_t)o->parallel, sizeof *s.slot);
    s.polled = choir__calloc((size_t)o->parallel * CHOIR__RUNNING_FDS + 1, sizeof *s.polled);
    s.status = choir__signals_take(numbers, CHOIR_COUNT(numbers));
    if (s.status == CHOIR_OK)
        choir__kept_stop_on(o->study, choir__signals_fd());
    choir__search_print_head(o);
    if (s.status == CHOIR_OK)
        loop(&s);
    int status = finish(&s);
    choir__kept_stop_on(o->study, -1);
    choir__signals_give_back();
    for (int64_t i = 0; i < s.part_count; i++)
        free(s.part[i].outcome.why);
    free(s.part);
    free(s.slot);
    free(s.why);
    free(s.polled);
    return status;
}
