/* The training thread's half of prefetching: threads, taking, restarting. See prefetch.h.
 *
 * If all stages are being copied, the training thread waits for the oldest copy.
 *
 * Handing over one stage at a time would cost two threads a wake-up each, which takes longer
 * than a small step. So workers sleep until half of the stages have been used.
 *
 * A restart marks stages that are being filled as stale; their contents are discarded.
 *
 * Workers are threads of this process: if one crashes, the process ends, and one that hangs
 * cannot be stopped, only reported (timeout_s) and left behind.
 *
 * A dataset may fork within get, for example to run a decoder. Workers are excluded from
 * base/process/forks.h, because a worker cannot join itself, nor wait for a fork that joins it.
 */
#include "data/loading/prefetch.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hold_signals.h"

enum {
    MIN_DEPTH = 3,
    STAGED_BYTES = 1 << 20 /* prepares small micro-batches further ahead */
};

/* --- the threads --- */

/* Starts the threads and returns whether any runs. Caller holds the lock. */
static bool start(choir__prefetch *p)
{
    p->stop = false;
    p->started = 0;
    while (p->running < p->source.workers &&
           choir__thread_start(&p->threads[p->running], choir__stages_serve, p) == 0)
        p->running++;
    return p->running;
}

/* Caller holds the lock, which is released until the threads have ended. */
static void stop(choir__prefetch *p)
{
    int running = p->running;
    if (!running || p->hung)
        return;
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < running; i++)
        pthread_join(p->threads[i], NULL);
    pthread_mutex_lock(&p->lock);
    p->running = 0;
}

/* --- forks: the threads rest, and the next take starts them again, on both sides --- */

static void before_fork(void *self)
{
    choir__prefetch *p = self;
    pthread_mutex_lock(&p->lock);
    stop(p);
}

static void in_parent(void *self)
{
    choir__prefetch *p = self;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

static void in_child(void *self)
{
    choir__prefetch *p = self;
    choir__cond_init(&p->changed); /* forgets waiters that do not exist on this side */
    pthread_mutex_unlock(&p->lock);
    choir__forkable_add(&p->forkable);
}

/* --- life --- */

static int choose_depth(const choir__prefetch_source *source)
{
    size_t bytes = (size_t)source->samples * (source->x_bytes + source->y_bytes) + 1;
    size_t fit = STAGED_BYTES / bytes;
    if (source->depth)
        return (int)choir__min(source->depth, CHOIR__MAX_STAGES);
    return (int)(fit < MIN_DEPTH           ? MIN_DEPTH
                 : fit > CHOIR__MAX_STAGES ? CHOIR__MAX_STAGES
                                           : fit);
}

static bool make_stage(choir__prefetch_stage *s, const choir__prefetch_source *source)
{
    size_t n = (size_t)source->samples;
    size_t x = (n * source->x_bytes + 64) & ~(size_t)63;
    size_t y = (n * source->y_bytes + 64) & ~(size_t)63;
    s->x = source->far ? source->far->pinned(x + y) : NULL;
    s->pinned = s->x != NULL;
    if (!s->pinned)
        s->x = aligned_alloc(64, x);
    s->y = s->pinned ? (char *)s->x + x : aligned_alloc(64, y);
    s->index = calloc(n, sizeof *s->index);
    return s->x && s->y && s->index;
}

choir_status choir__prefetch_new(
    const choir__prefetch_source *source, choir__prefetch **prefetch)
{
    choir__prefetch *p = choir__calloc(1, sizeof *p);
    p->source = *source;
    p->depth = choose_depth(source);
    for (int i = 0; i < CHOIR_MAX_WORKERS; i++)
        p->reading[i] = -1;
    pthread_mutex_init(&p->lock, NULL);
    choir__cond_init(&p->changed);
    p->forkable = (choir__forkable){
        .before = before_fork, .in_parent = in_parent, .in_child = in_child, .self = p};
    choir__forkable_add(&p->forkable);
    for (int i = 0; i < p->depth; i++)
        if (!make_stage(&p->stages[i], source)) {
            int depth = p->depth;
            p->source.release = NULL; /* the caller still owns it */
            choir__prefetch_free(p);
            return choir__error(CHOIR_ERR_MEMORY,
                "no host memory for %d micro-batches of %zu bytes: choose a smaller batch",
                depth, (size_t)source->samples * (source->x_bytes + source->y_bytes));
        }
    *prefetch = p;
    return CHOIR_OK;
}

/* Leaves a worker that hangs. It may continue one day, so its data stays until then. */
static bool leave_behind(choir__prefetch *p)
{
    if (!p->hung)
        return false;
    p->left = true;
    p->stop = true;
    for (int i = 0; i < p->running; i++)
        pthread_detach(p->threads[i]);
    pthread_cond_broadcast(&p->changed);
    return true;
}

void choir__prefetch_free(choir__prefetch *p)
{
    if (!p)
        return;
    choir__forkable_remove(&p->forkable);
    pthread_mutex_lock(&p->lock);
    stop(p);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->depth; i++)
        if (p->stages[i].state == CHOIR__COPYING)
            choir__event_wait(p->stages[i].copied);
    pthread_mutex_lock(&p->lock);
    bool left = leave_behind(p);
    pthread_mutex_unlock(&p->lock);
    if (!left)
        choir__stages_destroy(p);
}

/* --- taking --- */

/* Caller holds the lock. */
static void restart(choir__prefetch *p, int64_t position)
{
    p->ahead = position;
    for (int i = 0; i < p->depth; i++) {
        choir__prefetch_stage *s = &p->stages[i];
        if (s->state == CHOIR__READY)
            s->state = CHOIR__FREE;
        if (s->state != CHOIR__FILLING)
            continue;
        s->stale = true;
        s->next = s->count;
        choir__stages_settle(p, s);
    }
    pthread_cond_broadcast(&p->changed);
}

void choir__prefetch_restart(choir__prefetch *p, int64_t position)
{
    pthread_mutex_lock(&p->lock);
    restart(p, position);
    pthread_mutex_unlock(&p->lock);
}

void choir__prefetch_rest(choir__prefetch *p, int64_t position)
{
    pthread_mutex_lock(&p->lock);
    stop(p);
    restart(p, position);
    pthread_mutex_unlock(&p->lock);
}

static choir__prefetch_stage *find_ready(choir__prefetch *p, int64_t position)
{
    for (int i = 0; i < p->depth; i++)
        if (p->stages[i].state == CHOIR__READY && p->stages[i].position == position)
            return &p->stages[i];
    return NULL;
}

/* Returns the stage whose copy was launched first, if all are being copied. */
static choir__prefetch_stage *oldest_copy(choir__prefetch *p)
{
    choir__prefetch_stage *oldest = &p->stages[0];
    for (int i = 0; i < p->depth; i++) {
        if (p->stages[i].state != CHOIR__COPYING)
            return NULL;
        if (p->stages[i].copied.seq < oldest->copied.seq)
            oldest = &p->stages[i];
    }
    return oldest;
}

/* Waits for a stage's copy, and runs the queue if necessary. Caller holds the lock, which is
 * released meanwhile. */
static choir_status finish_copy(choir__prefetch *p, choir__prefetch_stage *s)
{
    pthread_mutex_unlock(&p->lock);
    choir_status status = choir__event_wait(s->copied);
    pthread_mutex_lock(&p->lock);
    if (s->state == CHOIR__COPYING) /* unless the thread has noticed the end first */
        s->state = CHOIR__FREE;
    pthread_cond_broadcast(&p->changed);
    return status;
}

/* Returns a sample of this micro-batch that a worker is reading, or -1. */
static int64_t find_reading(const choir__prefetch *p, int64_t position)
{
    for (int i = 0; i < p->depth; i++) {
        const choir__prefetch_stage *s = &p->stages[i];
        bool here = s->state == CHOIR__FILLING && s->position == position;
        for (int64_t j = 0; here && j < s->next; j++)
            for (int w = 0; w < p->running; w++)
                if (p->reading[w] == s->index[j])
                    return p->source.length ? s->index[j] % p->source.length : s->index[j];
    }
    return -1;
}

static choir_status timed_out(choir__prefetch *p, int64_t position)
{
    p->hung = p->busy > 0;
    return choir__error(CHOIR_ERR_TIMEOUT,
        "the loader had no micro-batch %lld within %g s: sample %lld of the dataset is still"
        " being read",
        (long long)position, p->source.timeout_s, (long long)find_reading(p, position));
}

/* Waits until something changes; returns false on timeout. Caller holds the lock. */
static bool wait_for_change(choir__prefetch *p, const struct timespec *until)
{
    if (!p->source.timeout_s)
        return pthread_cond_wait(&p->changed, &p->lock) == 0;
    return pthread_cond_timedwait(&p->changed, &p->lock, until) != ETIMEDOUT;
}

/* Waits until the requested stage is ready. Caller holds the lock, which is released while
 * waiting. */
static choir_status await(choir__prefetch *p, int64_t position, choir__prefetch_stage **ready)
{
    struct timespec until = choir__in_seconds(p->source.timeout_s);
    while (!(*ready = find_ready(p, position))) {
        int copying;
        choir__prefetch_stage *s = oldest_copy(p);
        if (s) {
            choir_status status = finish_copy(p, s);
            if (status != CHOIR_OK)
                return status;
            continue;
        }
        double began = choir__now();
        bool late = false;
        if (p->running || start(p))
            late = !wait_for_change(p, &until);
        else
            choir__stages_work(p, &copying); /* without threads, the work happens here */
        p->waited_s += choir__now() - began;
        if (late && !find_ready(p, position))
            return timed_out(p, position);
    }
    return CHOIR_OK;
}

size_t choir__prefetch_bytes(const choir__prefetch *p)
{
    const choir__prefetch_source *s = &p->source;
    return (size_t)p->depth * (size_t)s->samples * (s->x_bytes + s->y_bytes);
}

double choir__prefetch_waited(choir__prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    double seconds = p->waited_s;
    pthread_mutex_unlock(&p->lock);
    return seconds;
}

choir_status choir__prefetch_take(
    choir__prefetch *p, int64_t position, choir__prefetch_stage **stage)
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

/* Caller holds the lock. */
static void wake_for_used(choir__prefetch *p)
{
    int used = 0;
    for (int i = 0; i < p->depth; i++)
        used += p->stages[i].state == CHOIR__COPYING || p->stages[i].state == CHOIR__FREE;
    if (used >= p->depth / 2)
        pthread_cond_broadcast(&p->changed);
}

void choir__prefetch_copied(
    choir__prefetch *p, choir__prefetch_stage *stage, choir__event event)
{
    pthread_mutex_lock(&p->lock);
    stage->copied = event;
    stage->state = CHOIR__COPYING;
    wake_for_used(p);
    pthread_mutex_unlock(&p->lock);
}

void choir__prefetch_done(choir__prefetch *p, choir__prefetch_stage *stage)
{
    pthread_mutex_lock(&p->lock);
    stage->state = CHOIR__FREE;
    wake_for_used(p);
    pthread_mutex_unlock(&p->lock);
}
