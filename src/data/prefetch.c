/* The thread and the stages: see prefetch.h.
 *
 * The thread polls the events of copies with short naps: were it to wait for one, it would run
 * the training queue. When all stages are being copied the training thread has nothing better
 * to do, and waits for the oldest.
 *
 * Handing over a stage at a time would cost two threads a wake-up each, more than a small step
 * takes, so the thread sleeps until half of the stages have been used.
 *
 * A restart begins a new generation: what was being filled for the old one is thrown away.
 *
 * Forks: whatever prefetches stands in a registry; before a fork the threads are joined, and
 * after it, on both sides, started anew by the next take. */
#include "data/prefetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum {
    MIN_DEPTH = 3,
    MAX_DEPTH = 64,
    STAGED_BYTES = 1 << 20, /* small micro-batches are prepared further ahead */
    NAP_US = 100,
    LONG_NAP_US = 2000
};

struct choir__prefetch {
    choir__fill_fn *fill;
    void *arg;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    choir__stage stages[MAX_DEPTH];
    int depth;
    int64_t ahead;       /* position to fill next */
    uint64_t generation; /* counts restarts */
    pthread_t thread;
    bool running, stop;
    choir__prefetch *next; /* in the registry */
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__prefetch *registry;
static _Thread_local bool is_ours; /* this thread prefetches */

/* --- filling --- */

/* A stage to fill, or NULL; *copying: how many may be free soon. Under lock. */
static choir__stage *find_free(choir__prefetch *p, int *copying)
{
    *copying = 0;
    for (int i = 0; i < p->depth; i++) {
        choir__stage *s = &p->stages[i];
        if (s->state == CHOIR__COPYING && choir__event_done(s->copied))
            s->state = CHOIR__FREE;
        if (s->state == CHOIR__FREE)
            return s;
        *copying += s->state == CHOIR__COPYING;
    }
    return NULL;
}

/* Under lock, given up while filling. A restart meanwhile makes it void. */
static void fill_next(choir__prefetch *p, choir__stage *s)
{
    uint64_t generation = p->generation;
    s->state = CHOIR__FILLING;
    s->position = p->ahead++;
    pthread_mutex_unlock(&p->lock);
    choir_status status = p->fill(p->arg, s->position, s->x, s->y);
    char *message = status == CHOIR_OK ? NULL : choir__strdup(choir_error_message());
    pthread_mutex_lock(&p->lock);
    free(s->message);
    s->status = status;
    s->message = message;
    s->state = p->generation == generation ? CHOIR__READY : CHOIR__FREE;
    pthread_cond_broadcast(&p->changed);
}

static void nap(choir__prefetch *p, long us)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += 1000 * us;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&p->changed, &p->lock, &t);
}

static void *prepare(void *arg)
{
    choir__prefetch *p = arg;
    long us = NAP_US;
    is_ours = true;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        int copying;
        choir__stage *s = find_free(p, &copying);
        if (s) {
            fill_next(p, s);
            us = NAP_US;
        } else if (copying >= p->depth / 2) {
            nap(p, us);
            us = us < LONG_NAP_US ? 2 * us : us;
        } else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* --- the thread --- */

/* Signals are the program's: the thread takes none. Under lock. */
static bool start(choir__prefetch *p)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->stop = false;
    p->running = pthread_create(&p->thread, NULL, prepare, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p->running;
}

/* Under lock, given up while the thread comes to its end. */
static void stop(choir__prefetch *p)
{
    if (!p->running)
        return;
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_mutex_lock(&p->lock);
    p->running = false;
}

static void init_condition(choir__prefetch *p)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
}

/* A dataset may fork within get, to run a decoder, say: our thread cannot join itself. */
static void before_fork(void)
{
    if (is_ours)
        return;
    pthread_mutex_lock(&registry_lock);
    for (choir__prefetch *p = registry; p; p = p->next) {
        pthread_mutex_lock(&p->lock);
        stop(p);
    }
}

static void after_fork(bool child)
{
    if (is_ours)
        return;
    for (choir__prefetch *p = registry; p; p = p->next) {
        if (child)
            init_condition(p); /* forgets waiters that are not on this side */
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&registry_lock);
}

static void after_fork_parent(void)
{
    after_fork(false);
}

static void after_fork_child(void)
{
    after_fork(true);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

static void enter_registry(choir__prefetch *p)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&registry_lock);
    p->next = registry;
    registry = p;
    pthread_mutex_unlock(&registry_lock);
}

static void leave_registry(choir__prefetch *p)
{
    pthread_mutex_lock(&registry_lock);
    choir__prefetch **link = &registry;
    while (*link != p)
        link = &(*link)->next;
    *link = p->next;
    pthread_mutex_unlock(&registry_lock);
}

/* --- life --- */

choir_status choir__prefetch_new(
    choir__fill_fn *fill, void *arg, size_t x_bytes, size_t y_bytes, choir__prefetch **prefetch)
{
    choir__prefetch *p = choir__calloc(1, sizeof *p);
    p->fill = fill;
    p->arg = arg;
    size_t fit = STAGED_BYTES / (x_bytes + y_bytes + 1);
    p->depth = (int)(fit < MIN_DEPTH ? MIN_DEPTH : fit > MAX_DEPTH ? MAX_DEPTH : fit);
    pthread_mutex_init(&p->lock, NULL);
    init_condition(p);
    enter_registry(p);
    for (int i = 0; i < p->depth; i++) {
        choir__stage *s = &p->stages[i];
        s->x = aligned_alloc(64, (x_bytes + 64) & ~(size_t)63);
        s->y = aligned_alloc(64, (y_bytes + 64) & ~(size_t)63);
        if (!s->x || !s->y) {
            choir__prefetch_free(p);
            return choir__error(CHOIR_ERR_MEMORY,
                "no host memory for %d micro-batches of %zu bytes: choose a smaller batch",
                p->depth, x_bytes + y_bytes);
        }
    }
    *prefetch = p;
    return CHOIR_OK;
}

void choir__prefetch_free(choir__prefetch *p)
{
    if (!p)
        return;
    leave_registry(p);
    pthread_mutex_lock(&p->lock);
    stop(p);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->depth; i++) {
        choir__stage *s = &p->stages[i];
        if (s->state == CHOIR__COPYING)
            choir__event_wait(s->copied);
        free(s->x);
        free(s->y);
        free(s->message);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* --- taking --- */

/* Under lock. */
static void restart(choir__prefetch *p, int64_t position)
{
    p->generation++;
    p->ahead = position;
    for (int i = 0; i < p->depth; i++)
        if (p->stages[i].state == CHOIR__READY)
            p->stages[i].state = CHOIR__FREE;
    pthread_cond_broadcast(&p->changed);
}

void choir__prefetch_restart(choir__prefetch *p, int64_t position)
{
    pthread_mutex_lock(&p->lock);
    restart(p, position);
    pthread_mutex_unlock(&p->lock);
}

static choir__stage *find_ready(choir__prefetch *p, int64_t position)
{
    for (int i = 0; i < p->depth; i++)
        if (p->stages[i].state == CHOIR__READY && p->stages[i].position == position)
            return &p->stages[i];
    return NULL;
}

/* The stage whose copy was launched first, if all are being copied. */
static choir__stage *oldest_copy(choir__prefetch *p)
{
    choir__stage *oldest = &p->stages[0];
    for (int i = 0; i < p->depth; i++) {
        if (p->stages[i].state != CHOIR__COPYING)
            return NULL;
        if (p->stages[i].copied.seq < oldest->copied.seq)
            oldest = &p->stages[i];
    }
    return oldest;
}

/* Waits for its copy, running the queue if need be. Under lock, given up meanwhile. */
static choir_status finish_copy(choir__prefetch *p, choir__stage *s)
{
    pthread_mutex_unlock(&p->lock);
    choir_status status = choir__event_wait(s->copied);
    pthread_mutex_lock(&p->lock);
    if (s->state == CHOIR__COPYING) /* else the thread has noticed first */
        s->state = CHOIR__FREE;
    pthread_cond_broadcast(&p->changed);
    return status;
}

/* Until the stage wanted is ready. Under lock, given up while waiting. */
static choir_status await(choir__prefetch *p, int64_t position, choir__stage **ready)
{
    while (!(*ready = find_ready(p, position))) {
        int copying;
        choir__stage *s = oldest_copy(p);
        if (s) {
            choir_status status = finish_copy(p, s);
            if (status != CHOIR_OK)
                return status;
        } else if (p->running || start(p))
            pthread_cond_wait(&p->changed, &p->lock);
        else if ((s = find_free(p, &copying))) /* no thread to be had: do it here */
            fill_next(p, s);
    }
    return CHOIR_OK;
}

choir_status choir__prefetch_take(choir__prefetch *p, int64_t position, choir__stage **stage)
{
    pthread_mutex_lock(&p->lock);
    choir_status status = await(p, position, stage);
    if (status == CHOIR_OK && (*stage)->status != CHOIR_OK) {
        status = (*stage)->status;
        choir__set_message((*stage)->message);
        restart(p, position);
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}

void choir__prefetch_copied(choir__prefetch *p, choir__stage *stage, choir__event event)
{
    pthread_mutex_lock(&p->lock);
    stage->copied = event;
    stage->state = CHOIR__COPYING;
    int used = 0;
    for (int i = 0; i < p->depth; i++)
        used += p->stages[i].state == CHOIR__COPYING || p->stages[i].state == CHOIR__FREE;
    if (used >= p->depth / 2)
        pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}
