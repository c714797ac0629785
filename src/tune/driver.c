/* The search: places ask for trials as long as the window has room, the runner starts an
 * attempt and looks at it until it ends, a failed one is tried again, and the end goes into the
 * study. A runner with processes has one loop in the caller's thread, which sleeps in poll;
 * functions have a thread per place. */
#include "tune/driver.h"

#include <stdlib.h>

#include "tune/study.h"
#include "tune/trials/ended.h"

/* Between looks at other processes' trials, and at a process that is to end. */
enum { OTHERS_MS = 100, STOPPING_MS = 100 };

/* Some places of a search, and the thread that runs their trials. */
typedef struct worker {
    choir__driver *driver;
    choir__attempt **attempt; /* (count) */
    int count, busy;
    pthread_t thread;
} worker;

/* --- the search's end --- */

/* Keeps the first error, which is this thread's latest. */
static void fail(choir__driver *d, choir_status status)
{
    if (d->status == CHOIR_OK)
        d->error = choir__strdup(choir__message());
    d->status = d->status == CHOIR_OK ? status : d->status;
    pthread_cond_broadcast(&d->changed);
}

/* Counts parts in their order; counts other processes' parts only if the search follows them.
 */
static void count(choir__driver *d)
{
    for (; !d->gave_up && d->counted < choir__study_segments(d->study); d->counted++) {
        choir__segment_view part = choir__study_segment(d->study, d->counted);
        if (!part.trial || (!d->follows && !choir_trial_is_ours(part.trial)))
            continue;
        if (part.state == CHOIR_TRIAL_RUNNING)
            return;
        if (d->ops->count)
            d->ops->count(d, &part);
        bool failed = part.state == CHOIR_TRIAL_FAIL;
        bool earlier = d->counted < d->before; /* another run of the search had it */
        d->failed = failed ? part.trial : d->failed;
        d->failures = failed && !earlier ? d->failures + 1 : 0;
        d->gave_up = d->status == CHOIR_OK && d->failures == d->failures_max;
    }
}

/* Returns whether nothing more is to begin, whatever the study has. */
static bool is_stopped(const choir__driver *d)
{
    return d->gave_up || d->halted || d->status != CHOIR_OK;
}

/* Returns whether nothing more will begin. */
static bool is_over(const choir__driver *d)
{
    return is_stopped(d) || d->ended;
}

/* Returns whether the trials that run are to be killed. */
static bool is_abandoned(const choir__driver *d)
{
    return d->ops->abandons && d->status != CHOIR_OK;
}

/* While no part runs, a trial of this process that runs was asked for elsewhere. */
choir_status choir__driver_check_held(choir_study *s)
{
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

/* Ends a part as its last attempt did. The lock is held, and released meanwhile. */
static void tell(choir__driver *d, choir_trial *t, const choir__trial_end *how, double seconds)
{
    choir_status status = CHOIR_OK;
    pthread_mutex_unlock(&d->lock);
    if (d->ops->before_tell)
        status = d->ops->before_tell(d, t, how->state);
    if (status == CHOIR_OK)
        status = choir__trial_note_end(t, how->why, choir_trial_last_step(t), seconds);
    if (status == CHOIR_OK)
        status = choir_study_tell(d->study, t, how->state, how->values, d->study->objectives);
    if (status == CHOIR_OK && d->ops->after_tell)
        d->ops->after_tell(d, t);
    pthread_mutex_lock(&d->lock);
    d->running--;
    if (status != CHOIR_OK)
        fail(d, status);
    count(d);
    pthread_cond_broadcast(&d->changed);
}

/* Returns whether another part may begin. The rule of order has none that is a window beyond
 * one that runs; nor is it beyond one whose end the study knows, by another thread, and the
 * search has not counted. */
static bool has_room(const choir__driver *d)
{
    const choir_study *s = d->study;
    bool near = choir__study_segments(s) - d->counted < s->window;
    return (near || s->free || d->follows) && choir_study_ready(s);
}

/* Asks for the next part. Returns false if none is available now. The lock is held. */
static bool ask(choir__driver *d, choir__attempt *a)
{
    static const choir__trial_end stopped = {.state = CHOIR_TRIAL_PRUNED};
    for (;;) {
        count(d);
        if (is_stopped(d) || !has_room(d))
            return false;
        choir_status status = choir_study_ask(d->study, &a->trial);
        d->ended = status == CHOIR_ERR_END;
        if (status != CHOIR_OK) {
            if (status != CHOIR_ERR_END && status != CHOIR_ERR_STATE)
                fail(d,
                    status); /* END, STATE: no more trials, or none before another one ends */
            return false;
        }
        d->running++;
        a->trial->place = a->place + 1;
        if (!choir_trial_should_stop(a->trial))
            return true;
        tell(d, a->trial, &stopped, 0); /* the trial ran up to here before it was stopped */
    }
}

/* Starts an attempt. The lock is held, and released meanwhile. */
static void start(choir__driver *d, choir__attempt *a)
{
    pthread_mutex_unlock(&d->lock);
    a->started = choir__now();
    a->timed_out = false;
    a->cannot = NULL;
    choir__family_init(&a->family, 1);
    a->family.grace_s = 0;
    if (d->ops->start(d, a) != CHOIR_OK)
        a->cannot = choir__strdup(choir__message());
    pthread_mutex_lock(&d->lock);
}

/* Begins parts at free places while parts are available. */
static void fill(worker *w)
{
    choir__driver *d = w->driver;
    for (int i = 0; i < w->count; i++) {
        choir__attempt *a = w->attempt[i];
        if (a->busy)
            continue;
        if (!ask(d, a))
            break;
        a->busy = true;
        a->failed = 0;
        w->busy++;
        start(d, a);
    }
    count(d);
    if (is_over(d) || d->running)
        return;
    choir_status status =
        choir__driver_check_held(d->study); /* OK: other workers' trials run */
    if (status != CHOIR_OK)
        fail(d, status);
}

static void clear(choir__driver *d, choir__attempt *a)
{
    if (d->ops->clear)
        d->ops->clear(a);
    choir__family_free(&a->family);
    free(a->cannot);
}

/* Ends an attempt, and makes another one if that is due. The lock is held, and released
 * meanwhile. */
static void end(worker *w, choir__attempt *a)
{
    choir__driver *d = w->driver;
    pthread_mutex_unlock(&d->lock);
    double seconds = choir__now() - a->started;
    char *why = a->cannot      ? choir__format("could not be started: %s", a->cannot)
                : a->timed_out ? choir__format("took longer than %g s", d->timeout_s)
                               : NULL;
    choir__trial_end how = d->ops->end(a, why);
    clear(d, a);
    pthread_mutex_lock(&d->lock);
    if (how.state == CHOIR_TRIAL_FAIL && a->failed++ < d->retries && !is_stopped(d)) {
        start(d, a);
    } else {
        a->busy = false;
        w->busy--;
        if (d->halted) /* the trial was stopped by us: it has no result */
            d->running--;
        else
            tell(d, a->trial, &how, seconds);
    }
    free(how.why);
}

/* --- the loop --- */

int choir__in_ms(double seconds)
{
    return seconds <= 0 ? 0 : seconds > 3600 ? 3600000 : (int)(seconds * 1e3) + 1;
}

static int shorter(int a, int b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Returns for how many ms the search may sleep beside an attempt, or -1. */
static int patience(const choir__driver *d, const choir__attempt *a)
{
    int own = d->ops->patience && !a->cannot ? d->ops->patience(a) : -1;
    if (a->cannot)
        return 0;
    if (!a->family.alive)
        return own;
    if (a->family.stopping_at > 0)
        return shorter(own, STOPPING_MS);
    double left = d->timeout_s - (choir__now() - a->started);
    return d->timeout_s > 0 ? shorter(own, choir__in_ms(left)) : own;
}

/* Returns whether an attempt has ended, and stops its process when its time is over. */
static bool has_ended(const choir__driver *d, choir__attempt *a)
{
    struct pollfd polled;
    if (a->cannot)
        return true;
    choir__family_poll(&a->family, &polled);
    poll(&polled, 1, 0);
    choir__family_reap(&a->family, &polled);
    bool read = !d->ops->look || d->ops->look(a);
    if (!a->family.alive)
        return read;
    if (d->timeout_s > 0 && !a->family.stopping_at &&
        choir__now() - a->started > d->timeout_s) {
        a->timed_out = true;
        choir__family_stop(&a->family);
    }
    choir__family_press(&a->family);
    return false;
}

/* Returns whether another process can bring this search something to run: results that a next
 * trial waits for, or a trial whose worker has died. */
static bool awaits_others(const choir__driver *d)
{
    choir_study *s = d->study;
    if (!s->kept)
        return false;
    pthread_mutex_lock(&s->lock);
    bool awaits = choir__study_has_more(s);
    for (int64_t n = s->ended; n < s->segment_count && !awaits; n++)
        awaits = s->segment[n].trial >= 0 && !s->segment[n].ended &&
                 s->trial[s->segment[n].trial]->foreign;
    pthread_mutex_unlock(&s->lock);
    return awaits;
}

/* Waits for parts that other threads run, and looks again and again for other processes' parts.
 * The lock is held, and released while this thread waits. */
static void wait_for_change(choir__driver *d)
{
    struct timespec until = choir__in_seconds(OTHERS_MS / 1e3);
    if (awaits_others(d))
        pthread_cond_timedwait(&d->changed, &d->lock, &until);
    else
        pthread_cond_wait(&d->changed, &d->lock);
}

static void sleep_until_something(const worker *w)
{
    choir__driver *d = w->driver;
    size_t n = 0, room = (size_t)w->count * (1 + CHOIR__ATTEMPT_FDS) + 1;
    struct pollfd *polled = choir__calloc(room, sizeof *polled);
    int most = w->busy < w->count && awaits_others(d) ? OTHERS_MS : -1;
    if (d->ops->before_sleep)
        most = shorter(most, d->ops->before_sleep(d));
    polled[n++] = (struct pollfd){.fd = d->wakes, .events = POLLIN};
    for (int i = 0; i < w->count; i++) {
        const choir__attempt *a = w->attempt[i];
        if (!a->busy)
            continue;
        n += (size_t)choir__family_poll(&a->family, polled + n);
        n += (size_t)d->ops->poll(a, polled + n);
        most = shorter(most, patience(d, a));
    }
    poll(polled, n, most);
    free(polled);
    if (d->ops->after_sleep)
        d->ops->after_sleep(d);
}

/* Ends the trials that have ended. */
static void look(worker *w)
{
    choir__driver *d = w->driver;
    for (int i = 0; i < w->count && !is_abandoned(d); i++) {
        choir__attempt *a = w->attempt[i];
        if (a->busy && has_ended(d, a))
            end(w, a);
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    choir__driver *d = w->driver;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        fill(w);
        if (is_over(d) && (!w->busy || is_abandoned(d)))
            break;
        if (!d->ops->poll && !w->busy)
            wait_for_change(d);
        if (d->ops->poll) {
            pthread_mutex_unlock(&d->lock);
            sleep_until_something(w);
            pthread_mutex_lock(&d->lock);
        }
        look(w);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* The caller is the first worker. Where no more threads can be started, fewer run the trials,
 * with the same results. */
static void work_together(choir__driver *d)
{
    int workers = d->ops->poll ? 1 : d->parallel, started = 1;
    worker *w = choir__calloc((size_t)workers, sizeof *w);
    for (int i = 0; i < workers; i++)
        w[i] = (worker){.driver = d, .attempt = &d->attempt[i], .count = d->parallel / workers};
    while (started < workers && !pthread_create(&w[started].thread, NULL, work, &w[started]))
        started++;
    work(&w[0]);
    for (int i = 1; i < started; i++)
        pthread_join(w[i].thread, NULL);
    free(w);
}

void choir__driver_run(choir__driver *d)
{
    pthread_mutex_init(&d->lock, NULL);
    choir__cond_init(&d->changed);
    d->before = choir__study_segments(d->study);
    d->attempt = choir__calloc((size_t)d->parallel, sizeof *d->attempt);
    for (int i = 0; i < d->parallel; i++) {
        d->attempt[i] = choir__calloc(1, d->ops->bytes);
        d->attempt[i]->place = i;
    }
    work_together(d);
    for (int i = 0; i < d->parallel; i++) {
        if (d->attempt[i]->busy)
            clear(d, d->attempt[i]);
        free(d->attempt[i]);
    }
    if (d->status != CHOIR_OK)
        choir__set_message(d->error);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    free(d->attempt);
    free(d->error);
}
