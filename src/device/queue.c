/* Queues: tasks are copied into a ring, in order, and run by queue_run.c. This file has the
 * functions for their users. */
#include "device/queue.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/floats.h"
#include "device/queue_run.h"
#include "device/recording.h"
#include "device/counts/tally.h"

enum {
    /* room for a step of many micro-batches on several devices; pages are allocated on first
     * touch */
    RING_BYTES = 1 << 23,
    /* stays in the cache: an empty queue starts again at the front beyond this */
    HOT_BYTES = 1 << 18,
    NAP_US = 1000,
    /* for one of several queues to which a thread issues in turn: by the time it waits, all of
     * them could have been at work */
    BESIDE_NAP_US = 40,
    /* for the worker of a queue with a stream, whose tasks are waits for the host */
    STREAM_NAP_US = 20,
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__queue *registry;
static pthread_mutex_t failing =
    PTHREAD_MUTEX_INITIALIZER; /* the first failing thread writes the message */

/* --- issuing --- */

/* Returns a place for `bytes` contiguous bytes, or NULL while the ring is too full. The ring is
 * empty when write == read, and is never filled so far that the two would be equal. */
static task *reserve(choir__queue *q, size_t bytes)
{
    size_t read = atomic_load_explicit(&q->read, memory_order_acquire);
    bool again = q->write == read && q->write > HOT_BYTES && read > bytes;
    if (q->write < read)
        return read - q->write > bytes ? (task *)(q->ring + q->write) : NULL;
    /* room for an end mark after it */
    if (!again && RING_BYTES - q->write >= bytes + sizeof(task))
        return (task *)(q->ring + q->write);
    if (read <= bytes)
        return NULL;
    ((task *)(q->ring + q->write))->fn = NULL;
    q->write = 0;
    return (task *)q->ring;
}

/* Returns milliseconds of the coarse clock, which is four times as fast because it changes only
 * once per tick. */
static uint32_t coarse_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

static void run_at_once(choir__queue *q, choir__queue_task *fn, const void *args)
{
    if (atomic_load_explicit(&q->status, memory_order_relaxed) == CHOIR_OK ||
        fn == choir__queue_wait_task)
        choir__queue_call(q, fn, args);
    atomic_fetch_add(&q->issued, 1);
    atomic_fetch_add(&q->finished, 1);
}

void choir__queue_issue_raw(
    choir__queue *q, choir__queue_task *fn, const void *args, size_t bytes)
{
    if (q->at_once) {
        run_at_once(q, fn, args);
        return;
    }
    size_t need = (sizeof(task) + bytes + 15) & ~(size_t)15;
    pthread_mutex_lock(&q->issue_lock);
    task *t;
    /* full: run tasks, or wait until half of it has drained */
    while (!(t = reserve(q, need))) {
        uint64_t issued = atomic_load(&q->issued), done = choir__queue_finished(q);
        pthread_mutex_unlock(&q->issue_lock);
        choir__queue_wait_for_tasks(q, done + (issued - done + 1) / 2);
        pthread_mutex_lock(&q->issue_lock);
    }
    t->fn = fn;
    t->bytes = (uint32_t)need;
    t->issued_ms = q->opts.timed ? coarse_ms() : 0;
    if (bytes)
        memcpy(t->args, args, bytes);
    q->write += need;
    if (!q->started) /* before there is a task to call it for */
        choir__queue_start_worker(q);
    uint64_t issued = atomic_fetch_add(&q->issued, 1) + 1;
    atomic_store_explicit(&q->gauges->issued, issued, memory_order_relaxed);
    pthread_mutex_unlock(&q->issue_lock);
    if (q->opts.stream)
        choir__queue_run_at_once(q, issued);
    else
        choir__queue_find_keeper(q);
}

void choir__queue_issue(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes)
{
    if (queue->opts.null)
        return;
    choir__recording_note_task(queue, fn, args, bytes);
    choir__tally_note(fn, args);
    choir__queue_issue_raw(queue, fn, args, bytes);
}

/* --- events --- */

choir__event choir__queue_record(choir__queue *queue)
{
    choir__event event = {queue, atomic_load(&queue->issued)};
    choir__gpu_stream *s = queue->opts.stream;
    if (s && choir__queue_finished(queue) ==
                 event.seq) /* a waiter makes the mark of unfinished work */
        s->ops->mark(s, event.seq);
    if (!queue->opts.null)
        choir__recording_note_event(event);
    return event;
}

void choir__queue_hold(choir__queue *q)
{
    atomic_fetch_add(&q->holders, 1);
}

void choir__queue_let_go(choir__queue *q)
{
    if (atomic_fetch_sub(&q->holders, 1) > 1)
        return;
    if (q->opts.stream)
        q->opts.stream->ops->free(q->opts.stream);
    choir__alarm_close(&q->alarm);
    free(q->watches);
    pthread_mutex_destroy(&q->watch_lock);
    free(q);
}

/* Returns true if no wait is needed. A broken stream has reached every place, so its error is
 * passed on by a wait. */
static bool over(const choir__queue *queue, choir__event event)
{
    return (!event.queue->opts.stream || choir__queue_follows(queue, event.queue)) &&
           choir__event_done(event) && choir__queue_status(event.queue) == CHOIR_OK;
}

choir_status choir__queue_wait_event_raw(choir__queue *queue, choir__event event)
{
    if (!event.queue)
        return choir__error(
            CHOIR_ERR_STATE, "expected a recorded event to wait for, got an empty one");
    if (event.queue != queue && !over(queue, event)) {
        choir__queue_hold(event.queue);
        choir__queue_issue_raw(queue, choir__queue_wait_task, &event, sizeof event);
    }
    return CHOIR_OK;
}

choir_status choir__queue_wait_event(choir__queue *queue, choir__event event)
{
    if (queue->opts.null)
        return CHOIR_OK;
    choir__recording_note_wait(queue, event);
    return choir__queue_wait_event_raw(queue, event);
}

bool choir__event_done(choir__event event)
{
    choir__gpu_stream *s = event.queue ? event.queue->opts.stream : NULL;
    if (!event.queue || choir__queue_finished(event.queue) < event.seq)
        return false;
    if (!s || s->ops->reached(s) >= event.seq)
        return true;
    s->ops->mark(s, choir__queue_finished(event.queue)); /* for the next query */
    return false;
}

choir_status choir__event_wait(choir__event event)
{
    if (!event.queue)
        return choir__error(
            CHOIR_ERR_STATE, "expected a recorded event to wait for, got an empty one");
    choir__queue_wait_for(event.queue, event.seq);
    return choir__queue_status(event.queue);
}

choir_status choir__queue_wait(choir__queue *queue)
{
    choir__queue_wait_for(queue, atomic_load(&queue->issued));
    return choir__queue_status(queue);
}

/* --- failure --- */

void choir__queue_break(choir__queue *queue, choir_status status, const char *sentence)
{
    pthread_mutex_lock(&failing);
    if (atomic_load(&queue->status) == CHOIR_OK) {
        snprintf(queue->message, sizeof queue->message, "%s", sentence);
        atomic_store(&queue->status, status);
    }
    pthread_mutex_unlock(&failing);
}

choir_status choir__queue_status(choir__queue *queue)
{
    choir_status status = atomic_load(&queue->status);
    if (status != CHOIR_OK) /* the message was written on another thread, with its rank */
        choir__set_message(queue->message);
    return status;
}

choir_status choir__queue_look(choir__queue *queue)
{
    choir__gpu_stream *s = queue->opts.stream;
    if (s)
        choir__queue_note_trouble(queue, s->ops->look(s, choir__queue_finished(queue)));
    return choir__queue_status(queue);
}

void choir__queue_clear(choir__queue *queue)
{
    choir__queue_wait_for(queue, atomic_load(&queue->issued));
    atomic_store(&queue->status, CHOIR_OK);
}

/* --- figures and observers --- */

choir__queue_stats choir__queue_get_stats(choir__queue *queue)
{
    CHOIR__DEFAULT_FLOATS;
    choir__gpu_stream *s = queue->opts.stream;
    /* read first: tasks that are issued meanwhile finish later than this */
    uint64_t done = choir__queue_finished(queue);
    uint64_t there = s ? s->ops->reached(s) : done;
    return (choir__queue_stats){
        .busy_s = (double)atomic_load(&queue->busy_ns) * 1e-9,
        .issued = atomic_load(&queue->issued),
        .finished = there < done ? there : done,
        .moved = atomic_load_explicit(&queue->moved, memory_order_relaxed),
        .wakes = atomic_load(&queue->wakes),
        .idle_wakes = atomic_load(&queue->idle_wakes),
    };
}

void choir__queue_moved_raw(choir__queue *to, choir__queue *from, uint64_t bytes)
{
    atomic_fetch_add_explicit(&to->moved, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&from->moved, bytes, memory_order_relaxed);
}

void choir__queue_moved(choir__queue *to, choir__queue *from, uint64_t bytes)
{
    choir__recording_note_moved(to, from, bytes);
    choir__queue_moved_raw(to, from, bytes);
}

void choir__queue_observe(choir__queue *queue, choir__observer *fn, void *arg)
{
    /* Other threads may continue to issue; the previous observer must not be called with the
     * new arg. */
    atomic_store(&queue->observer, NULL);
    choir__queue_wait_for(queue, atomic_load(&queue->issued));
    queue->observer_arg = arg;
    atomic_store_explicit(&queue->observer, fn, memory_order_release);
}

bool choir__queue_observed(choir__queue *queue)
{
    return atomic_load(&queue->observer) != NULL;
}

bool choir__queue_captures(choir__queue *queue, choir__queue_task *fn, const void *args)
{
    return queue->opts.capturable ? queue->opts.capturable(fn, args)
                                  : queue->opts.stream->ops->capturable(fn, args);
}

choir__gpu_stream *choir__queue_stream(choir__queue *queue)
{
    return queue->opts.stream;
}

/* --- life --- */

static void enter_stream(void *arg)
{
    choir__gpu_stream *s = arg;
    s->ops->enter(s);
}

choir__queue *choir__queue_new(choir__queue_opts opts)
{
    choir__queue *q = choir__calloc(1, sizeof *q);
    q->opts = opts;
    strncpy(q->name, opts.name ? opts.name : "queue", sizeof q->name - 1);
    q->opts.name = q->name;
    q->gauges = opts.gauges ? opts.gauges : &q->unseen;
    q->patience_us = opts.patience_us ? opts.patience_us : opts.stream ? STREAM_NAP_US : NAP_US;
    if (opts.stream) {
        q->opts.enter = enter_stream;
        q->opts.arg = opts.stream;
    }
    if (opts.core_count > 0) {
        int *cores = choir__alloc((size_t)opts.core_count * sizeof *cores);
        q->opts.cores = memcpy(cores, opts.cores, (size_t)opts.core_count * sizeof *cores);
    }
    q->ring = opts.null ? NULL : choir__alloc(RING_BYTES);
    pthread_mutex_init(&q->issue_lock, NULL);
    pthread_mutex_init(&q->watch_lock, NULL);
    q->alarm.fd = -1;
    atomic_store(&q->wake_at, UINT64_MAX);
    atomic_store(&q->holders, 1);
    pthread_mutex_lock(&registry_lock);
    q->next = registry;
    registry = q;
    pthread_mutex_unlock(&registry_lock);
    return q;
}

void choir__queue_run_as_issued(choir__queue *q)
{
    q->at_once = true;
    free(q->ring);
    q->ring = NULL;
}

/* Another queue may still have to run its wait for a finished task of this one. It then reads
 * the counters, so they stay until the last holder releases them. */
void choir__queue_free(choir__queue *q)
{
    if (!q)
        return;
    choir__queue_stop_worker(q);
    choir__recordings_lose(q);
    if (q->opts.stream)
        q->opts.stream->ops->close(q->opts.stream);
    pthread_mutex_lock(&registry_lock);
    choir__queue **link = &registry;
    while (*link != q)
        link = &(*link)->next;
    *link = q->next;
    pthread_mutex_unlock(&registry_lock);
    pthread_mutex_destroy(&q->issue_lock);
    if (q->opts.core_count > 0)
        free((void *)q->opts.cores);
    free(q->ring);
    atomic_store(&q->status, CHOIR_OK); /* later waits need no error, only to continue */
    choir__queue_let_go(q);
}

void choir__queue_set_patience(choir__queue *queue, int patience_us)
{
    atomic_store_explicit(&queue->patience_us, patience_us, memory_order_relaxed);
}

void choir__queue_beside_others(choir__queue *queue)
{
    if (!queue->opts.stream)
        choir__queue_set_patience(queue, BESIDE_NAP_US);
}

void choir__queue_place(choir__queue *q, const int *cores)
{
    memcpy((int *)q->opts.cores, cores, (size_t)q->opts.core_count * sizeof *cores);
}

void choir__queue_rest(choir__queue *q)
{
    pthread_mutex_lock(&q->issue_lock);
    if (!q->opts.stream && choir__queue_finished(q) == atomic_load(&q->issued))
        choir__queue_stop_worker(q);
    pthread_mutex_unlock(&q->issue_lock);
}

void choir__queues_quiesce(void)
{
    pthread_mutex_lock(&registry_lock);
    for (choir__queue *q = registry; q; q = q->next)
        choir__queue_stop_worker(q);
    pthread_mutex_unlock(&registry_lock);
}
