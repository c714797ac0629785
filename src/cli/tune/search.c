/* choir tune: runs trials, at most `parallel` at once, until there are enough.
 *
 * One loop sleeps until a trial writes or ends, a time is over, or a signal comes. A trial that
 * failed is run again with the same parameters, `retries` times. Outcomes are printed in the
 * order of the trials' numbers, so that the output is the same however many run at once. */
#include "cli/tune/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line/printed.h"
#include "line/say.h"
#include "cli/tune/live.h"
#include "launch/process/signal_table.h"
#include "tune/trials/checkpoints.h"
#include "tune/trials/ended.h"
#include "tune/kept.h"
#include "tune/segment.h"

enum { INTERRUPTED = 128, OTHERS_MS = 100 }; /* between looks at other processes' trials */

/* A place where a trial runs. */
typedef struct slot {
    bool busy;
    int64_t attempt;
    choir__running running;
} slot;

typedef struct search {
    const choir__search *opts;
    choir__trial_job job;
    slot *slot;            /* (parallel) */
    struct pollfd *polled; /* for all slots, and the signals */
    int64_t printed;       /* trials, or segments of trials that stop and go on */
    int64_t failures;      /* of these, in a row */
    char *why;             /* the last one failed */
    const choir_trial *failed;
    int busy;
    bool gave_up; /* too many failures */
    int signal;   /* that ends the search; 0: none */
    choir_status status;
    choir__live live;
    /* Trials that had ended, and trials or segments that had begun, when this search began */
    int64_t ended_before, begun_before;
} search;

/* --- one trial --- */

static void start(search *s, slot *at, choir_trial *trial)
{
    at->busy = true;
    s->busy++;
    const choir__trial_place *place = s->opts->places ? &s->opts->places[at - s->slot] : NULL;
    s->status = choir__running_start(&at->running, &s->job, place, trial);
}

/* Tells the study how a trial, or its segment, has ended; why: NULL, or on the heap. */
static void tell(search *s, choir_trial *trial, choir_trial_state state, const double *values,
    char *why, double seconds)
{
    const choir__trial_job *job = &s->opts->job;
    if (job->copies && state == CHOIR_TRIAL_PRUNED)
        s->status = choir__checkpoint_keep(
            job->dir, choir_trial_number(trial), choir_trial_last_step(trial));
    if (s->status == CHOIR_OK)
        s->status = choir__trial_note_end(trial, why, choir_trial_last_step(trial), seconds);
    int64_t begun_at = choir_trial_step(trial);
    if (s->status == CHOIR_OK)
        s->status = choir_study_tell(s->opts->study, trial, state, values, job->metrics);
    if (s->status == CHOIR_OK && job->pauses && !job->copies)
        choir__checkpoint_drop(job->dir, choir_trial_number(trial), begun_at);
    free(why);
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
    if (choir_trial_should_stop(trial)) /* it ran as far as this before it was stopped */
        tell(s, trial, CHOIR_TRIAL_PRUNED, NULL, NULL, 0);
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

/* Returns the number of trials, or segments, that have begun. */
static int64_t begun(const search *s)
{
    return s->opts->pauses ? choir__study_segments(s->opts->study)
                           : choir_study_count(s->opts->study);
}

/* Returns the outcome of a segment, whose trial is NULL if it is empty. */
static choir__trial_outcome outcome_of_segment(const search *s, int64_t i)
{
    choir__segment_view g = choir__study_segment(s->opts->study, i);
    choir__trial_outcome o = {.trial = g.trial,
        .state = g.state,
        .value = {g.value},
        .step = g.step,
        .seconds = g.seconds};
    if (g.trial && g.state == CHOIR_TRIAL_FAIL) {
        o.why = choir__outcome_of(g.trial).why;
        if (!choir_trial_attribute(g.trial, "why")) {
            free(o.why);
            o.why = choir__trial_no_number(s->opts->job.metric[0], g.value);
        }
    }
    return o;
}

static choir__trial_outcome outcome_at(const search *s, int64_t i)
{
    return s->opts->pauses ? outcome_of_segment(s, i)
                           : choir__outcome_of(choir_study_trial(s->opts->study, i));
}

/* Prints outcomes in order, and counts failures in a row. After the last one that is allowed,
 * trials that ran beside it count no more. */
static void print(search *s)
{
    for (; !s->gave_up && s->printed < begun(s); s->printed++) {
        choir__trial_outcome o = outcome_at(s, s->printed);
        if (!o.trial)
            continue;
        if (o.state == CHOIR_TRIAL_RUNNING)
            return;
        choir__live_erase(&s->live);
        choir__search_print_trial(s->opts, &o, &s->live);
        bool earlier = s->printed < s->begun_before; /* another run of the search had it */
        s->failures = o.why && !earlier ? s->failures + 1 : 0;
        s->gave_up = s->failures == s->opts->failures_max;
        free(s->why);
        s->why = o.why;
        s->failed = o.trial;
    }
}

static void end(search *s, slot *at)
{
    choir__running *r = &at->running;
    choir_trial *trial = r->trial;
    char *why;
    choir_trial_state state = choir__running_end(r, &why);
    double values[CHOIR_STUDY_OBJECTIVES], seconds = choir__now() - r->started;
    memcpy(values, r->value, sizeof values);
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
    tell(s, trial, state, values, why, seconds);
    print(s);
}

/* --- the loop --- */

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
    bool others = s->busy < s->opts->parallel && s->printed < begun(s);
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
    if (s->live.on && (patience < 0 || patience > 2 * CHOIR__LIVE_MS))
        patience = 2 * CHOIR__LIVE_MS;
    poll(s->polled, (nfds_t)count, patience);
}

/* --- the lines below the table --- */

static void count_trials(const search *s, choir__live_facts *f)
{
    for (int64_t i = 0; i < choir_study_count(s->opts->study); i++) {
        choir_trial_state state = choir_trial_result(choir_study_trial(s->opts->study, i));
        f->ended += state != CHOIR_TRIAL_RUNNING;
        f->failed += state == CHOIR_TRIAL_FAIL;
        f->stopped += state == CHOIR_TRIAL_PRUNED;
    }
}

/* Counts a part that has ended at a step; of too many steps the first ones. */
static void count_rung(choir__live_facts *f, int64_t step)
{
    int at = 0;
    while (at < f->rungs && f->rung[at].step < step)
        at++;
    if (at < f->rungs && f->rung[at].step == step) {
        f->rung[at].ended++;
    } else if (f->rungs < CHOIR__LIVE_RUNGS) {
        memmove(f->rung + at + 1, f->rung + at, (size_t)(f->rungs++ - at) * sizeof *f->rung);
        f->rung[at] = (choir__live_rung){step, 1};
    }
}

static void show(search *s)
{
    choir__live_facts f = {.best = choir_study_best(s->opts->study),
        .trials = s->opts->trials,
        .can_predict = !s->opts->pauses};
    choir__live_trial *running = choir__alloc((size_t)s->opts->parallel * sizeof *running);
    for (int64_t i = 0; i < s->opts->parallel; i++) {
        const choir__running *r = &s->slot[i].running;
        if (s->slot[i].busy)
            running[f.running_count++] =
                (choir__live_trial){choir_trial_number(r->trial), r->step, r->value[0]};
    }
    f.running = running;
    count_trials(s, &f);
    f.here = f.ended - s->ended_before;
    for (int64_t i = 0; s->opts->pauses && i < begun(s); i++) {
        choir__segment_view g = choir__study_segment(s->opts->study, i);
        if (g.trial && g.state != CHOIR_TRIAL_RUNNING && g.state != CHOIR_TRIAL_FAIL)
            count_rung(&f, g.step);
    }
    choir__live_draw(&s->live, &f);
    free(running);
}

static void loop(search *s)
{
    for (;;) {
        fill(s);
        if (s->status == CHOIR_OK)
            print(s);
        bool all = s->printed == begun(s);
        if (s->status != CHOIR_OK || (!s->busy && (all || s->gave_up || s->signal)))
            return;
        if (choir__live_due(&s->live))
            show(s);
        sleep_until_something(s);
        take_signals(s);
        for (int64_t i = 0; i < s->opts->parallel && s->status == CHOIR_OK; i++)
            if (s->slot[i].busy && choir__running_look(&s->slot[i].running))
                end(s, &s->slot[i]);
    }
}

/* Returns whether outcome a is better than b: complete, or further, or by its value. */
static bool is_better(
    const search *s, const choir__trial_outcome *a, const choir__trial_outcome *b)
{
    bool done = a->state == CHOIR_TRIAL_COMPLETE;
    if (done != (b->state == CHOIR_TRIAL_COMPLETE))
        return done;
    if (!done && a->step != b->step)
        return a->step > b->step;
    return s->opts->most ? a->value[0] > b->value[0] : a->value[0] < b->value[0];
}

/* Returns the best one of the outcomes that were printed. Those of trials that ran beside the
 * last failure that was allowed are none. */
static choir__trial_outcome best_printed(search *s)
{
    choir__trial_outcome best = {.trial = NULL};
    for (int64_t i = 0; i < s->printed; i++) {
        choir__trial_outcome o = outcome_at(s, i);
        free(o.why);
        if (o.trial && o.state != CHOIR_TRIAL_FAIL && !isnan(o.value[0]) &&
            (!best.trial || is_better(s, &o, &best)))
            best = o;
    }
    return best;
}

/* The other machines of a study may take its last numbers before this one's given trials. */
static void note_points_left(const search *s)
{
    int64_t left = choir__kept_points_left(s->opts->study);
    if (s->gave_up || s->signal || !left)
        return;
    char *note = choir__format(
        "%lld of the trials of --enqueue did not run, since the study has its %lld trials "
        "(--trials) from other searches, too",
        (long long)left, (long long)choir_study_count(s->opts->study));
    choir__cli_notes("tune", note);
    free(note);
}

/* Prints the last lines of a trial's standard error, of which the reason has the last one. */
static void print_lines(const choir_trial *failed)
{
    const char *text = failed ? choir_trial_attribute(failed, CHOIR__LINES_KEY) : NULL;
    json_t *lines = text ? json_loads(text, 0, NULL) : NULL;
    if (json_array_size(lines) > 1)
        fprintf(
            stderr, "The last lines of trial %lld:\n", (long long)choir_trial_number(failed));
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = json_string_value(json_array_get(lines, i));
        fprintf(stderr, "  ");
        choir__print_word(stderr, line ? line : "", 0);
        fprintf(stderr, "\n");
    }
    json_decref(lines);
}

static int finish(search *s)
{
    choir__trial_outcome printed =
        s->gave_up ? best_printed(s) : (choir__trial_outcome){.trial = NULL};
    const choir_trial *best = s->gave_up ? printed.trial : choir_study_best(s->opts->study);
    for (int64_t i = 0; i < s->opts->parallel; i++)
        if (s->slot[i].busy)
            choir__running_free(&s->slot[i].running);
    if (s->status != CHOIR_OK)
        return choir__cli_fail();
    note_points_left(s);
    if (best)
        choir__search_print_best(s->opts, best, s->gave_up ? printed.value : NULL);
    if (s->signal)
        return INTERRUPTED + s->signal;
    char *why = choir__clean(choir__strdup(s->why ? s->why : ""));
    if (s->gave_up)
        fprintf(stderr,
            "choir tune: %lld trials in a row have failed, the last one because it %s "
            "(--max-failures)\n",
            (long long)s->failures, why);
    else if (!best)
        fprintf(stderr, "choir tune: no trial has a value%s%s\n",
            s->why ? "; the last one failed because it " : "", why);
    free(why);
    if (s->gave_up || !best)
        print_lines(s->failed);
    return s->gave_up || !best ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}

int choir__search_run(const choir__search *o)
{
    int numbers[CHOIR__SIGNALS_MOST];
    search s = {.opts = o};
    s.slot = choir__calloc((size_t)o->parallel, sizeof *s.slot);
    s.polled = choir__calloc((size_t)o->parallel * CHOIR__RUNNING_FDS + 1, sizeof *s.polled);
    s.job = o->job;
    s.status = choir__signals_take(numbers, choir__signals_that(CHOIR__SIGNAL_STOPS, numbers));
    choir__adopt_orphans(); /* of trials whose processes began sessions of their own */
    if (s.status == CHOIR_OK)
        s.status = choir__warden_new((int)o->parallel, &s.job.warden);
    if (s.status == CHOIR_OK)
        choir__kept_stop_on(o->study, choir__signals_fd());
    choir__live_begin(&s.live, o);
    choir__search_print_head(o, &s.live);
    choir__live_facts before = {.ended = 0};
    count_trials(&s, &before);
    s.ended_before = before.ended;
    s.begun_before = begun(&s);
    if (s.status == CHOIR_OK)
        loop(&s);
    choir__live_erase(&s.live);
    int status = finish(&s);
    choir__kept_stop_on(o->study, -1);
    choir__signals_give_back();
    choir__warden_free(s.job.warden);
    choir__kill_descendants();
    free(s.slot);
    free(s.why);
    free(s.polled);
    return status;
}
