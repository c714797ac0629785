/* Studies: they keep trials. next_segment.c decides which one is next, and ask.c gives it. */
#include <choir/study.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "base/utf8.h"
#include "tune/program/link.h"
#include "tune/study.h"
#include "tune/trial.h"

choir_study_opts choir_study_defaults(void)
{
    return (choir_study_opts){
        .sampler = "tpe", .scheduler = "none", .direction = "minimize", .window = 1};
}

/* --- opening --- */

static choir_status read_directions(choir_study *s, const char *text)
{
    char *copy = choir__strdup(text), *rest = copy, *word;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (word = strsep(&rest, ","))) {
        bool most = !strcmp(word, "maximize");
        if (!most && strcmp(word, "minimize") != 0)
            status = choir__error(CHOIR_ERR_ARGUMENT,
                "unknown direction '%s': choose one of minimize, maximize", word);
        else if (s->objectives == CHOIR_STUDY_OBJECTIVES)
            status = choir__error(
                CHOIR_ERR_ARGUMENT, "expected at most %d directions", CHOIR_STUDY_OBJECTIVES);
        else
            s->sign[s->objectives++] = most ? -1 : 1;
    }
    free(copy);
    return status;
}

static choir_status check_opts(const choir_space *space, choir_study_opts opts)
{
    if (!opts.sampler || !opts.scheduler || !opts.direction || opts.window < 1 ||
        opts.trials < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_study_open: expected options that begin as choir_study_defaults(), with a "
            "window of 1 or more");
    if (!space && !opts.storage)
        return choir__missing("choir_study_open", "space");
    if (space && !space->count)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "choir_study_open: expected a space with parameters");
    if (opts.name && !*opts.name)
        return choir__error(CHOIR_ERR_ARGUMENT, "expected a study's name, got ''");
    if (opts.name && !choir__is_utf8(opts.name, strlen(opts.name)))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected a study's name in UTF-8, as storages keep it, got '%s'", opts.name);
    return CHOIR_OK;
}

static choir_status open_sampler(choir_study *s, const char *sampler, uint64_t seed)
{
    choir__history first = choir__study_history(s);
    return choir__tune_sampler_open(sampler, &first, seed, &s->sampler);
}

static choir_status open_scheduler(choir_study *s, const choir_study_opts *opts)
{
    choir_status status = choir__scheduler_open(opts, s->objectives, &s->scheduler);
    if (status == CHOIR_OK && opts->storage && opts->free && s->scheduler->ops->pauses)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "scheduler %s: expected a study in memory, since which trials continue follows from "
            "the order of their ends in a free study, and the storage does not keep that",
            opts->scheduler);
    return status;
}

choir_status choir_study_open(
    const choir_space *space, choir_study_opts opts, choir_study **study)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(study, __func__, "study"))
        return CHOIR_ERR_ARGUMENT;
    choir_status status = check_opts(space, opts);
    if (status != CHOIR_OK)
        return status;
    choir_study *s = choir__calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    s->window = opts.window;
    s->trials = opts.trials;
    s->free = opts.free;
    s->key = choir__rng_key(opts.seed, "study");
    status = read_directions(s, opts.direction);
    if (status == CHOIR_OK && space)
        s->space = choir__space_copy(space);
    if (status == CHOIR_OK)
        status = open_scheduler(s, &opts);
    if (status == CHOIR_OK && space)
        status = open_sampler(s, opts.sampler, opts.seed);
    if (status == CHOIR_OK && opts.storage)
        status = choir__study_sync_open(s, &opts); /* all options have been checked */
    if (status == CHOIR_OK && !space)
        status = open_sampler(s, "random", opts.seed);
    if (status == CHOIR_OK && opts.storage)
        status = choir__study_sync_refresh(s);
    if (status == CHOIR_OK)
        *study = s;
    else
        choir_study_free(s);
    return status;
}

static void free_trial(choir_trial *t, int params)
{
    for (int i = 0; t->texts && i < params; i++)
        free(t->texts[i]);
    free(t->texts);
    free(t->reports);
    free(t->later);
    free(t->point);
    free(t->fixed);
    free(t->values);
    choir__attributes_free(&t->attributes);
    free(t);
}

void choir_study_free(choir_study *s)
{
    if (!s)
        return;
    choir__study_sync_close(s->kept);
    for (int64_t i = 0; i < s->count; i++)
        free_trial(s->trial[i], s->space->count);
    while (s->queue)
        choir__study_drop_given(s);
    choir__attributes_free(&s->attributes);
    if (s->sampler)
        s->sampler->ops->free(s->sampler);
    if (s->scheduler)
        s->scheduler->ops->free(s->scheduler);
    free(s->segment);
    free(s->news);
    choir_space_free(s->space);
    pthread_mutex_destroy(&s->lock);
    free(s->trial);
    free(s);
}

/* --- asking --- */

choir_status choir_study_ask(choir_study *s, choir_trial **trial)
{
    CHOIR__DEFAULT_FLOATS;
    if (choir__lacks(s, __func__, "study") || choir__lacks(trial, __func__, "trial"))
        return CHOIR_ERR_ARGUMENT;
    if (s->forked)
        return choir__link_refuses(__func__);
    pthread_mutex_lock(&s->lock);
    choir_status status =
        s->kept ? choir__study_sync_ask(s, trial) : choir__study_ask(s, trial);
    pthread_mutex_unlock(&s->lock);
    return status;
}

bool choir_study_ready(const choir_study *study)
{
    if (choir__lacks(study, __func__, "study"))
        return false;
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    bool is = s->kept ? choir__study_sync_ready(s) : choir__study_ready(s);
    pthread_mutex_unlock(&s->lock);
    return is;
}

/* --- looking --- */

int64_t choir_study_count(const choir_study *study)
{
    if (choir__lacks(study, __func__, "study"))
        return 0;
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    int64_t count = s->count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

int choir_study_objectives(const choir_study *s)
{
    return choir__lacks(s, __func__, "study") ? 0 : s->objectives;
}

bool choir_study_maximizes(const choir_study *s, int objective)
{
    return !choir__lacks(s, __func__, "study") && objective >= 0 && objective < s->objectives &&
           s->sign[objective] < 0;
}

choir_trial *choir_study_trial(const choir_study *study, int64_t number)
{
    if (choir__lacks(study, __func__, "study"))
        return NULL;
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    choir_trial *t = number >= 0 && number < s->count ? s->trial[number] : NULL;
    pthread_mutex_unlock(&s->lock);
    return t;
}

int64_t choir__study_segments(const choir_study *study)
{
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    int64_t count = s->segment_count;
    pthread_mutex_unlock(&s->lock);
    return count;
}

choir__segment_view choir__study_segment(const choir_study *study, int64_t n)
{
    choir_study *s = (choir_study *)(uintptr_t)study;
    choir__segment_view view = {.value = (double)NAN, .step = -1};
    pthread_mutex_lock(&s->lock);
    const choir__trial_segment *g = &s->segment[n];
    if (g->trial >= 0) {
        const choir_trial *t = view.trial = s->trial[g->trial];
        const choir__report *last = g->reports ? &t->reports[g->reports - 1] : NULL;
        view.state = g->ended ? g->state : CHOIR_TRIAL_RUNNING;
        view.seconds = g->seconds;
        view.step = g->ended && last ? last->step : -1;
        if (view.state == CHOIR_TRIAL_COMPLETE)
            view.value = t->values[0];
        else if (view.state == CHOIR_TRIAL_PRUNED && last)
            view.value = last->value;
    }
    pthread_mutex_unlock(&s->lock);
    return view;
}

/* Returns the last report of a trial that was stopped and perhaps resumed since; NULL: no
 * report. */
static const choir__report *last_report(const choir_trial *t)
{
    int64_t count = t->state == CHOIR_TRIAL_RUNNING ? t->before : t->report_count;
    return count ? &t->reports[count - 1] : NULL;
}

static double value_of(const choir_trial *t)
{
    return t->state == CHOIR_TRIAL_COMPLETE ? t->values[0] : last_report(t)->value;
}

/* Returns whether a is better than b, each complete or stopped. */
static bool better(const choir_trial *a, const choir_trial *b, double sign)
{
    bool done = a->state == CHOIR_TRIAL_COMPLETE;
    if (done != (b->state == CHOIR_TRIAL_COMPLETE))
        return done;
    if (!done && last_report(a)->step != last_report(b)->step)
        return last_report(a)->step > last_report(b)->step;
    return value_of(a) * sign < value_of(b) * sign;
}

choir_trial *choir_study_best(const choir_study *study)
{
    if (choir__lacks(study, __func__, "study"))
        return NULL;
    choir_study *s = (choir_study *)(uintptr_t)study;
    pthread_mutex_lock(&s->lock);
    choir_trial *best = NULL;
    for (int64_t i = 0; i < s->count; i++) {
        choir_trial *t = s->trial[i];
        bool has_value =
            t->state == CHOIR_TRIAL_COMPLETE ||
            (t->state != CHOIR_TRIAL_FAIL && last_report(t) && !isnan(last_report(t)->value));
        if (has_value && (!best || better(t, best, s->sign[0])))
            best = t;
    }
    pthread_mutex_unlock(&s->lock);
    return best;
}
