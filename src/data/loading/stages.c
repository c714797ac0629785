/* The workers' half of prefetching: opening stages and filling them.
 *
 * An idle worker polls the events of copies with short naps; waiting for one would run the
 * training queue. If several samples of a stage fail, the error of the first one is reported,
 * no matter which worker met it: samples are handed out in order, so all samples before it are
 * read. */
#include "data/loading/prefetch.h"

#include <stdlib.h>

#include "base/board/board.h"
#include "device/cpu/context.h"

enum {
    SHARES = 4, /* portions of a stage per worker, about */
    NAP_US = 100,
    LONG_NAP_US = 2000
};

static _Thread_local int number; /* this worker's number */

/* --- filling: under the lock, which is released while the source works --- */

/* Returns a stage to open, or NULL. *copying: how many may become free soon. Caller holds the
 * lock. */
static choir__prefetch_stage *stage_to_open(choir__prefetch *p, int *copying)
{
    *copying = 0;
    for (int i = 0; i < p->depth; i++) {
        choir__prefetch_stage *s = &p->stages[i];
        if (s->state == CHOIR__COPYING && choir__event_done(s->copied))
            s->state = CHOIR__FREE;
        if (s->state == CHOIR__FREE)
            return s;
        *copying += s->state == CHOIR__COPYING;
    }
    return NULL;
}

/* Returns the earliest open stage with samples to hand out, or NULL. */
static choir__prefetch_stage *find_open(choir__prefetch *p)
{
    choir__prefetch_stage *found = NULL;
    for (int i = 0; i < p->depth; i++) {
        choir__prefetch_stage *s = &p->stages[i];
        if (s->state == CHOIR__FILLING && s->next < s->count &&
            (!found || s->position < found->position))
            found = s;
    }
    return found;
}

void choir__stages_settle(choir__prefetch *p, choir__prefetch_stage *s)
{
    if (s->active || (s->next < s->count && !s->stale))
        return;
    s->state = s->stale ? CHOIR__FREE : CHOIR__READY;
    pthread_cond_broadcast(&p->changed);
}

static void open_stage(choir__prefetch *p, choir__prefetch_stage *s)
{
    int64_t epoch, count = p->source.samples;
    s->state = CHOIR__FILLING;
    s->position = p->ahead++;
    s->stale = false;
    s->count = s->next = 0; /* nothing to hand out yet */
    s->active = 1;
    p->listing = true;
    p->busy++;
    pthread_mutex_unlock(&p->lock);
    p->source.list(p->source.arg, s->position, &epoch, s->index, &count);
    pthread_mutex_lock(&p->lock);
    p->busy--;
    p->listing = false;
    s->epoch = epoch;
    s->failed = s->count = count;
    s->active = 0;
    s->status = CHOIR_OK;
    if (p->running > 1)
        pthread_cond_broadcast(&p->changed);
    choir__stages_settle(p, s);
}

/* Reads the samples [from, to) of a stage. Returns the sample that failed, or `to`. Caller does
 * not hold the lock. */
static int64_t get_samples(choir__prefetch *p, choir__prefetch_stage *s, int64_t from,
    int64_t to, choir_status *status)
{
    const choir__prefetch_source *source = &p->source;
    int64_t j = from;
    *status = CHOIR_OK;
    for (; j < to && *status == CHOIR_OK && !p->left; j++) {
        p->reading[number] = s->index[j];
        *status = source->get(source->arg, s->epoch, s->index[j],
            (char *)s->x + (size_t)j * source->x_bytes,
            (char *)s->y + (size_t)j * source->y_bytes);
        choir__board_beat();
    }
    p->reading[number] = -1;
    return *status == CHOIR_OK ? to : j - 1;
}

static void fill_some(choir__prefetch *p, choir__prefetch_stage *s)
{
    int64_t share = s->count / (SHARES * choir__max(1, p->source.workers));
    int64_t from = s->next, to = choir__min(s->count, from + choir__max(1, share));
    choir_status status;
    s->next = to;
    s->active++;
    p->busy++;
    pthread_mutex_unlock(&p->lock);
    int64_t j = get_samples(p, s, from, to, &status);
    char *message = status == CHOIR_OK ? NULL : choir__strdup(choir__message());
    pthread_mutex_lock(&p->lock);
    p->busy--;
    s->active--;
    if (status != CHOIR_OK && j < s->failed) {
        free(s->message);
        s->failed = j;
        s->status = status;
        s->message = message;
        s->next = s->count; /* later samples need not be read */
    } else
        free(message);
    choir__stages_settle(p, s);
}

bool choir__stages_work(choir__prefetch *p, int *copying)
{
    choir__prefetch_stage *s = find_open(p);
    *copying = 0;
    if (s)
        fill_some(p, s);
    else if (!p->listing && (s = stage_to_open(p, copying)))
        open_stage(p, s);
    return s;
}

static void nap(choir__prefetch *p, long us)
{
    struct timespec t = choir__in_seconds(1e-6 * (double)us);
    p->napping = true;
    pthread_cond_timedwait(&p->changed, &p->lock, &t);
    p->napping = false;
}

void *choir__stages_serve(void *arg)
{
    choir__prefetch *p = arg;
    long us = NAP_US;
    choir__forks_exclude();
    if (p->source.workers > 1) /* one worker stays on the rank's core; several use more cores */
        choir__cpu_free_thread();
    pthread_mutex_lock(&p->lock);
    number = p->started++;
    while (!p->stop) {
        int copying;
        if (choir__stages_work(p, &copying))
            us = NAP_US;
        else if (copying >= p->depth / 2 && copying && !p->napping) {
            nap(p, us);
            us = us < LONG_NAP_US ? 2 * us : us;
        } else
            pthread_cond_wait(&p->changed, &p->lock);
    }
    bool last = p->left && --p->running == 0;
    pthread_mutex_unlock(&p->lock);
    if (last)
        choir__stages_destroy(p);
    return NULL;
}

/* Frees a stage's x and y, which are pinned if the device's memory is separate. */
static void free_stage(choir__prefetch_stage *s, const choir__far *far)
{
    if (s->pinned) {
        far->unpin(s->x);
        return;
    }
    free(s->x);
    free(s->y);
}

void choir__stages_destroy(choir__prefetch *p)
{
    for (int i = 0; i < p->depth; i++) {
        choir__prefetch_stage *s = &p->stages[i];
        free_stage(s, p->source.far);
        free(s->index);
        free(s->message);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    if (p->source.release)
        p->source.release(p->source.arg);
    free(p);
}
