/* choir_tune: the begin and the end of trials, and of the search: see tuning.h. */
#include "tune/program/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "tune/study.h"
#include "tune/trial.h"
#include "tune/trials/ended.h"

int choir_trial_place(const choir_trial *trial)
{
    return choir__lacks(trial, __func__, "trial") ? -1 : trial->place - 1;
}

/* --- the search's end --- */

/* Keeps the first error, which is this thread's latest. */
static void stop_by(choir__tuning *t, choir_status status)
{
    t->over = true;
    if (t->status != CHOIR_OK)
        return;
    t->status = status;
    t->error = choir__strdup(choir__message());
}

/* Counts parts in their order. */
static void count(choir__tuning *t)
{
    while (!t->over && t->counted < t->begun && t->part[t->counted] >= 0) {
        t->failures = t->part[t->counted++] ? t->failures + 1 : 0;
        if (t->failures < t->opts.failures_max)
            continue;
        choir__error(CHOIR_ERR_STATE,
            "%lld trial%s in a row failed, which ends the search; the last one: %s",
            (long long)t->failures, t->failures == 1 ? "" : "s", t->why);
        stop_by(t, CHOIR_ERR_STATE);
    }
}

/* While no part runs, a trial of this process that runs was asked for elsewhere. */
choir_status choir__tuning_check_held(const choir__tuning *t)
{
    choir_study *s = t->study;
    const choir_trial *held = NULL;
    pthread_mutex_lock(&s->lock);
    for (int64_t n = s->ended; n < s->segment_count && !held; n++)
        if (s->segment[n].trial >= 0 && !s->segment[n].ended &&
            !s->trial[s->segment[n].trial]->foreign)
            held = s->trial[s->segment[n].trial];
    pthread_mutex_unlock(&s->lock);
    if (!held)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "choir_tune: expected a study without trials of the caller's own, got trial %lld, which "
        "was asked for and has not ended: end it by choir_study_tell",
        (long long)held->number);
}

/* --- a part --- */

static void begin(choir__tuning *t, int place, choir__tuned *one)
{
    if (t->begun == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->part = choir__realloc(t->part, (size_t)t->room);
    }
    t->part[t->begun] = -1;
    t->running++;
    one->part = t->begun++;
    one->attempt = 0;
    one->why = NULL;
    one->status = CHOIR_OK;
    one->began = choir__now();
    one->trial->place = place + 1;
}

/* Ends a part as the outcome says. The lock is held, and released while the study writes. */
static void tell(choir__tuning *t, choir__tuned *one)
{
    choir_trial_state state = one->why ? CHOIR_TRIAL_FAIL : CHOIR_TRIAL_COMPLETE;
    if (!one->why && choir_trial_should_stop(one->trial))
        state = CHOIR_TRIAL_PRUNED;
    pthread_mutex_unlock(&t->lock);
    choir_status status = choir__trial_note_end(
        one->trial, one->why, choir_trial_last_step(one->trial), choir__now() - one->began);
    if (status == CHOIR_OK)
        status =
            choir_study_tell(t->study, one->trial, state, one->values, t->study->objectives);
    pthread_mutex_lock(&t->lock);
    bool failed = choir_trial_result(one->trial) == CHOIR_TRIAL_FAIL;
    if (failed && !one->why)
        one->why = choir__strdup("a value is not a number");
    t->part[one->part] = failed;
    t->running--;
    if (failed) {
        free(t->why);
        t->why = one->why;
        one->why = NULL;
    }
    if (status != CHOIR_OK)
        stop_by(t, status);
    count(t);
    pthread_cond_broadcast(&t->changed);
}

/* Returns whether another part may begin. The rule of order has none that is a window beyond
 * one that runs; nor is it beyond one whose end the study knows and this process has not
 * counted. */
static bool has_room(const choir__tuning *t)
{
    const choir_study *s = t->study;
    return (s->free || t->begun - t->counted < s->window) && choir_study_ready(s);
}

/* Like choir__tuning_begin, with the lock held. */
static bool try_begin(choir__tuning *t, int place, choir__tuned *one)
{
    bool began = false;
    while (!t->over && !began && has_room(t)) {
        choir_status status = choir_study_ask(t->study, &one->trial);
        if (status == CHOIR_ERR_STATE)
            break; /* before another trial ends */
        if (status == CHOIR_ERR_END)
            t->over = true;
        else if (status != CHOIR_OK)
            stop_by(t, status);
        else {
            begin(t, place, one);
            began = !choir_trial_should_stop(one->trial);
            if (!began) /* it ran as far as this before it was stopped */
                tell(t, one);
        }
    }
    if (!began && !t->over && !t->running) { /* else a trial of another process runs */
        choir_status status = choir__tuning_check_held(t);
        if (status != CHOIR_OK)
            stop_by(t, status);
    }
    if (t->over)
        pthread_cond_broadcast(&t->changed);
    return began;
}

bool choir__tuning_begin(choir__tuning *t, int place, choir__tuned *one)
{
    pthread_mutex_lock(&t->lock);
    bool began = try_begin(t, place, one);
    pthread_mutex_unlock(&t->lock);
    return began;
}

/* Waits for trials of this process, and looks again and again for those of others. */
static void wait_for_change(choir__tuning *t)
{
    struct timespec until;
    if (!t->study->kept) {
        pthread_cond_wait(&t->changed, &t->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += CHOIR__OTHERS_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&t->changed, &t->lock, &until);
}

bool choir__tuning_await(choir__tuning *t, int place, choir__tuned *one)
{
    pthread_mutex_lock(&t->lock);
    bool began = try_begin(t, place, one);
    while (!began && !t->over) {
        wait_for_change(t);
        began = try_begin(t, place, one);
    }
    pthread_mutex_unlock(&t->lock);
    return began;
}

bool choir__tuning_end(choir__tuning *t, choir__tuned *one)
{
    pthread_mutex_lock(&t->lock);
    bool again = one->why && one->attempt++ < t->opts.retries && !t->over;
    if (again) {
        free(one->why);
        one->why = NULL;
        one->status = CHOIR_OK;
    } else {
        tell(t, one);
    }
    pthread_mutex_unlock(&t->lock);
    return again;
}

void choir__tuned_run(const choir__tuning *t, choir__tuned *one)
{
    for (int i = 0; i < CHOIR_STUDY_OBJECTIVES; i++)
        one->values[i] = (double)NAN;
    choir__set_message("");
    one->status = t->fn(one->trial, t->arg, one->values);
    if (one->status == CHOIR_OK)
        return;
    const char *message = choir__message();
    one->why = choir__strdup(*message ? message : choir_status_text(one->status));
}
