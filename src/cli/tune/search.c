/* choir tune: a search (tune/driver.h) whose trials are programs.
 *
 * Outcomes are printed in the order of the trials' numbers, so that the output is the same
 * however many run at once. */
#include "cli/tune/search.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/base.h"
#include "line/printed.h"
#include "line/say.h"
#include "cli/tune/live.h"
#include "launch/process/signal_table.h"
#include "tune/study_sync.h"
#include "tune/trials/checkpoints.h"
#include "tune/trials/command.h"
#include "tune/trials/ended.h"

/* --- after the search ---
 *
 * choir tune --test: a command that runs with the best trial when the search has ended, such as
 * an evaluation on data that no trial has seen. */

extern char **environ;

/* Copies the next word to `word`: up to a blank outside of quotes, without the quotes. Returns
 * where it ends, or NULL if a quote is not closed. */
static const char *next_word(const char *text, char *word)
{
    char quote = 0;
    for (; *text && (quote || !isspace((unsigned char)*text)); text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"')
            quote = quote ? 0 : *text;
        else
            *word++ = *text;
    }
    *word = '\0';
    return quote ? NULL : text;
}

choir_status choir__final_words(const char *text, char ***words)
{
    size_t count = 0;
    char *word = choir__alloc(strlen(text) + 1);
    const char *at = text;
    *words = choir__calloc(strlen(text) / 2 + 2, sizeof(char *));
    while (at && *(at += strspn(at, " \t\n"))) {
        at = next_word(at, word);
        (*words)[count++] = choir__strdup(word);
    }
    free(word);
    if (!at || !count)
        return choir__error(CHOIR_ERR_ARGUMENT, "--test: expected %s, got '%s'",
            at ? "a command" : "quotes that are closed", text);
    return CHOIR_OK;
}

int choir__final_run(const choir__search *s, char *const *words, const choir_trial *best)
{
    char *dir = s->job.dir
                    ? choir__format("%s/%lld", s->job.dir, (long long)choir_trial_number(best))
                    : NULL;
    char **line = choir__command_of(words, s->space, best, dir);
    pid_t pid;
    fflush(stdout); /* before the command's own output */
    int ended = -1, error = posix_spawnp(&pid, line[0], NULL, NULL, line, environ);
    while (!error && waitpid(pid, &ended, 0) < 0 && errno == EINTR)
        ;
    if (error)
        fprintf(stderr, "choir tune: --test: cannot run %s: %s\n", line[0], choir__why(error));
    else if (ended)
        fprintf(stderr, "choir tune: --test: %s failed\n", line[0]);
    free(dir);
    choir__command_free(line);
    return error || ended ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}

enum { INTERRUPTED = 128 };

typedef struct search {
    const choir__search *opts;
    choir__trial_job job;
    choir__driver driver;
    char *why; /* the last one that was printed failed */
    const choir_trial *last;
    int signal; /* signal that ends the search; 0: none */
    choir__live live;
    int64_t ended_before; /* trials that had ended when this search began */
} search;

/* --- a trial as a program --- */

static choir_status start(choir__driver *d, choir__attempt *a)
{
    const search *s = d->arg;
    const choir__device_share *shares = s->opts->shares;
    return choir__running_start(a, &s->job, shares ? &shares[a->place] : NULL);
}

static choir_status keep_checkpoint(
    choir__driver *d, choir_trial *trial, choir_trial_state state)
{
    const search *s = d->arg;
    return s->job.copies && state == CHOIR_TRIAL_PRUNED
               ? choir__checkpoint_keep(
                     s->job.dir, choir_trial_number(trial), choir_trial_last_step(trial))
               : CHOIR_OK;
}

/* The checkpoint with which a part began is needed no more. */
static void drop_checkpoint(choir__driver *d, choir_trial *trial)
{
    const search *s = d->arg;
    if (s->job.pauses && !s->job.copies)
        choir__checkpoint_drop(s->job.dir, choir_trial_number(trial), choir_trial_step(trial));
}

/* --- outcomes --- */

static choir__trial_outcome outcome_of(const search *s, const choir__segment_view *part)
{
    if (!s->opts->pauses)
        return choir__outcome_of(part->trial);
    choir__trial_outcome o = {.trial = part->trial,
        .state = part->state,
        .value = {part->value},
        .step = part->step,
        .seconds = part->seconds};
    if (part->state == CHOIR_TRIAL_FAIL)
        o.why = choir__trial_why(part->trial);
    if (part->state == CHOIR_TRIAL_FAIL && !o.why)
        o.why = choir__trial_no_number(s->job.metric[0], part->value);
    return o;
}

static void print(choir__driver *d, const choir__segment_view *part)
{
    search *s = d->arg;
    choir__trial_outcome o = outcome_of(s, part);
    choir__live_erase(&s->live);
    choir__search_print_trial(s->opts, &o, &s->live);
    free(s->why);
    s->why = o.why;
    s->last = o.trial;
}

/* --- signals --- */

static void take_signals(choir__driver *d)
{
    search *s = d->arg;
    for (choir__signal next; choir__signals_next(&next);) {
        for (int i = 0; i < d->parallel; i++) {
            choir__attempt *a = d->attempt[i];
            if (!a->busy)
                continue;
            choir__family_stop(&a->family);
            if (s->signal) /* the second one: no patience */
                choir__family_signal(&a->family, SIGKILL);
        }
        s->signal = next.number;
        d->halted = true;
    }
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
    choir_study *study = s->opts->study;
    const choir__driver *d = &s->driver;
    choir__live_facts f = {.best = choir_study_best(study),
        .trials = s->opts->trials,
        .can_predict = !s->opts->pauses};
    choir__live_trial *running = choir__alloc((size_t)d->parallel * sizeof *running);
    for (int i = 0; i < d->parallel; i++) {
        const choir__running *r = (const choir__running *)d->attempt[i];
        if (r->base.busy)
            running[f.running_count++] =
                (choir__live_trial){choir_trial_number(r->base.trial), r->step, r->value[0]};
    }
    f.running = running;
    count_trials(s, &f);
    f.here = f.ended - s->ended_before;
    for (int64_t i = 0; s->opts->pauses && i < choir__study_segments(study); i++) {
        choir__segment_view part = choir__study_segment(study, i);
        if (part.trial && part.state != CHOIR_TRIAL_RUNNING && part.state != CHOIR_TRIAL_FAIL)
            count_rung(&f, part.step);
    }
    choir__live_draw(&s->live, &f);
    free(running);
}

static int show_if_due(choir__driver *d)
{
    search *s = d->arg;
    if (choir__live_due(&s->live))
        show(s);
    return s->live.on ? 2 * CHOIR__LIVE_MS : -1;
}

static const choir__runner_ops runner = {.bytes = sizeof(choir__running),
    .abandons = true,
    .start = start,
    .poll = choir__running_poll,
    .patience = choir__running_patience,
    .look = choir__running_look,
    .end = choir__running_end,
    .clear = choir__running_clear,
    .before_tell = keep_checkpoint,
    .after_tell = drop_checkpoint,
    .count = print,
    .before_sleep = show_if_due,
    .after_sleep = take_signals};

/* --- the end --- */

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

/* Returns the best of the printed outcomes. Trials that were still running at the last allowed
 * failure have no printed outcome. */
static choir__trial_outcome best_printed(const search *s)
{
    choir__trial_outcome best = {.trial = NULL};
    for (int64_t i = 0; i < s->driver.counted; i++) {
        choir__segment_view part = choir__study_segment(s->opts->study, i);
        if (!part.trial)
            continue;
        choir__trial_outcome o = outcome_of(s, &part);
        free(o.why);
        if (o.state != CHOIR_TRIAL_FAIL && !isnan(o.value[0]) &&
            (!best.trial || is_better(s, &o, &best)))
            best = o;
    }
    return best;
}

/* The other machines of a study may take its last numbers before this one's given trials. */
static void note_points_left(const search *s)
{
    int64_t left = choir__study_sync_points_left(s->opts->study);
    if (s->driver.gave_up || s->signal || !left)
        return;
    char *note = choir__format(
        "%lld of the trials of --enqueue did not run, since the study has its %lld trials "
        "(--trials) from other searches, too",
        (long long)left, (long long)choir_study_count(s->opts->study));
    choir__line_notes("tune", note);
    free(note);
}

/* Prints the last lines of a trial's standard error, except the last one, which the reason has.
 */
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

static int finish(const search *s)
{
    const choir__driver *d = &s->driver;
    choir__trial_outcome printed =
        d->gave_up ? best_printed(s) : (choir__trial_outcome){.trial = NULL};
    const choir_trial *best = d->gave_up ? printed.trial : choir_study_best(s->opts->study);
    note_points_left(s);
    if (best)
        choir__search_print_best(s->opts, best, d->gave_up ? printed.value : NULL);
    if (s->signal)
        return INTERRUPTED + s->signal;
    char *why = choir__clean(choir__strdup(s->why ? s->why : ""));
    if (d->gave_up)
        fprintf(stderr,
            "choir tune: %lld trials in a row have failed, the last one because it %s "
            "(--max-failures)\n",
            (long long)d->failures, why);
    else if (!best)
        fprintf(stderr, "choir tune: no trial has a value%s%s\n",
            s->why ? "; the last one failed because it " : "", why);
    free(why);
    if (d->gave_up || !best)
        print_lines(s->last);
    return d->gave_up || !best ? CHOIR__EXIT_FAILED : CHOIR__EXIT_OK;
}

/* Prepares this process for trials that are processes. */
static choir_status prepare(search *s)
{
    int numbers[CHOIR__SIGNALS_MOST];
    choir_status status =
        choir__signals_take(numbers, choir__signals_that(CHOIR__SIGNAL_STOPS, numbers));
    choir__adopt_orphans(); /* for trials whose processes began sessions of their own */
    if (status == CHOIR_OK)
        status = choir__warden_new(s->driver.parallel, &s->job.warden);
    if (status != CHOIR_OK)
        return status;
    s->driver.wakes = choir__signals_fd();
    choir__study_sync_stop_on(s->opts->study, s->driver.wakes);
    return CHOIR_OK;
}

int choir__search_run(const choir__search *o)
{
    search s = {.opts = o, .job = o->job};
    s.driver = (choir__driver){.study = o->study,
        .ops = &runner,
        .arg = &s,
        .parallel = (int)o->parallel,
        .retries = o->retries,
        .failures_max = o->failures_max,
        .timeout_s = o->job.timeout_s,
        .follows = true};
    choir_status status = prepare(&s);
    choir__live_begin(&s.live, o);
    choir__search_print_head(o, &s.live);
    choir__live_facts before = {.ended = 0};
    count_trials(&s, &before);
    s.ended_before = before.ended;
    if (status == CHOIR_OK) {
        choir__driver_run(&s.driver);
        status = s.driver.status;
    }
    choir__live_erase(&s.live);
    int exits = status == CHOIR_OK ? finish(&s) : choir__line_fail();
    choir__study_sync_stop_on(o->study, -1);
    choir__signals_give_back();
    choir__warden_free(s.job.warden);
    choir__kill_descendants();
    free(s.why);
    return exits;
}
