/* Queues: a byte ring of tasks, two counters, and a lock that says who runs it.
 *
 *     issued    tasks copied into the ring          (grows under issue_lock)
 *     finished  tasks whose function has returned   (grows under the runner's lock)
 *               and, where there is a stream, the place it has reached (stream.h)
 *
 * A place in the queue is a value of `issued`; it has been reached when `finished` has caught
 * up. Whoever holds `running` executes tasks; a waiter takes it if it is free, else sleeps
 * until `finished` reaches what it waits for. The worker sleeps while there is nothing to do;
 * once woken it lets NAP pass before it takes an idle queue, because a host that issues work
 * usually waits for it soon and then runs it itself. */
#include "device/queue.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/futex.h"
#include "device/recording.h"
#include "device/stream.h"

enum {
    RING_BYTES = 1 << 23, /* a step of many micro-batches on several devices; pages as needed */
    HOT_BYTES = 1 << 18,  /* stays in the cache: an empty queue begins again behind it */
    NAP_US = 1000,
    STREAM_NAP_US = 20, /* of the worker, whose tasks are a host's waits */
    SPINS = 300,
    LONG_US = 100000, /* a sleeper looks again this often, should a wake-up be lost */
};

typedef struct task {
    choir__task *fn;    /* NULL: the rest of the ring is unused, go on at its start */
    uint32_t bytes;     /* of header and arguments */
    uint32_t issued_ms; /* of timed queues: choir__now() in coarse milliseconds, wrapping */
    unsigned char args[];
} task;

struct choir__queue {
    choir__queue_opts opts;
    char name[32];
    unsigned char *ring;
    size_t write;        /* under issue_lock */
    _Atomic size_t read; /* by the runner */
    pthread_mutex_t issue_lock;
    _Atomic uint64_t issued, finished;
    atomic_int running;
    /* waiters */
    atomic_uint done;         /* futex: bumped when wake_at is reached */
    _Atomic uint64_t wake_at; /* the nearest place somebody sleeps for */
    /* worker */
    pthread_t worker;
    bool started; /* under issue_lock */
    atomic_bool asleep, stop;
    atomic_uint bell;
    /* failure */
    atomic_int status;
    char message[512];
    /* time, by the runner */
    _Atomic uint64_t busy_ns;            /* without waits for other queues */
    double busy_from;                    /* not counted yet */
    double looked;                       /* when it last asked for the time */
    bool fresh;                          /* and no task has begun since */
    const task *running_task;            /* now, or last */
    choir__queue_gauges *gauges, unseen; /* opts.gauges, or this one */
    choir__observer *_Atomic observer;
    void *observer_arg;
    _Atomic uint64_t moved;
    atomic_int holders; /* its owner; waits for it that other queues have yet to run; blocks */
    choir__queue *next;
};

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__queue *registry;
static _Thread_local choir__queue *current;

/* --- time --- */

static double look(choir__queue *q)
{
    q->fresh = true;
    return q->looked = choir__now();
}

double choir__queue_now(void)
{
    return current ? look(current) : choir__now();
}

double choir__queue_looked(void)
{
    return current ? current->looked : choir__now();
}

/* The clock is four times as fast where it is looked at only every tick. */
static uint32_t coarse_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (uint32_t)((uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000);
}

double choir__queue_issued(void)
{
    if (!current || !current->opts.timed)
        return 0;
    uint32_t now = (uint32_t)(uint64_t)(current->looked * 1e3);
    int32_t ago = (int32_t)(now - current->running_task->issued_ms);
    return current->looked - (ago > 0 ? ago * 1e-3 : 0);
}

/* A stream keeps its own time. */
static void begin_busy(choir__queue *q)
{
    if (q->opts.stream)
        return;
    q->busy_from = look(q);
    atomic_store_explicit(
        &q->gauges->busy_since_ns, (int64_t)(q->busy_from * 1e9), memory_order_relaxed);
}

static void end_busy(choir__queue *q)
{
    if (q->opts.stream)
        return;
    double busy = (q->fresh ? q->looked : look(q)) - q->busy_from;
    uint64_t sum = atomic_load_explicit(&q->busy_ns, memory_order_relaxed) +
                   (uint64_t)(busy > 0 ? busy * 1e9 : 0);
    atomic_store_explicit(&q->busy_ns, sum, memory_order_relaxed);
    atomic_store_explicit(&q->gauges->busy_since_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&q->gauges->busy_ns, sum, memory_order_relaxed);
}

/* --- running --- */

static bool try_running(choir__queue *q)
{
    int free = 0;
    return !atomic_load_explicit(&q->running, memory_order_relaxed) &&
           atomic_compare_exchange_strong(&q->running, &free, 1);
}

static uint64_t finished(choir__queue *q)
{
    return atomic_load_explicit(&q->finished, memory_order_acquire);
}

static void wait_task(const void *args);
static void let_go_of_awaited(const void *args);
static void wait_for_stream(choir__queue *q, uint64_t place);

static void call(choir__queue *q, choir__task *fn, const void *args, size_t bytes)
{
    fn(args);
    if (q->opts.stream)
        q->opts.stream->ops->ran(q->opts.stream, fn, args, bytes);
}

/* Who watches a stream's queue sees its tasks one by one: nothing overlaps then. */
static void run_task(choir__queue *q, const task *t)
{
    choir__observer *observer = atomic_load_explicit(&q->observer, memory_order_acquire);
    if (t->fn == wait_task) {
        t->fn(t->args);
        return;
    }
    if (!observer) {
        call(q, t->fn, t->args, t->bytes - sizeof *t);
        return;
    }
    uint64_t before = finished(q);
    wait_for_stream(q, before);
    double start = choir__now();
    call(q, t->fn, t->args, t->bytes - sizeof *t);
    if (q->opts.stream)
        q->opts.stream->ops->wait(q->opts.stream, before + 1, before + 1);
    observer(q->observer_arg, t->fn, t->args, start, choir__now());
}

/* The last task before `until` counts the turn's time before it is finished: who waits for it
 * may ask for the sum at once. */
static void run_next(choir__queue *q, uint64_t until)
{
    size_t at = atomic_load_explicit(&q->read, memory_order_relaxed);
    task *t = (task *)(q->ring + at);
    if (!t->fn) {
        at = 0;
        t = (task *)q->ring;
    }
    if (atomic_load_explicit(&q->status, memory_order_relaxed) == CHOIR_OK) {
        q->fresh = false;
        q->running_task = t;
        run_task(q, t);
    } else if (t->fn == wait_task) {
        let_go_of_awaited(t->args);
    }
    atomic_store_explicit(&q->read, at + t->bytes, memory_order_release);
    uint64_t now = atomic_load_explicit(&q->finished, memory_order_relaxed) + 1;
    if (now == until)
        end_busy(q);
    atomic_store(&q->finished, now);
    atomic_store_explicit(&q->gauges->finished, now, memory_order_relaxed);
    if (now >= atomic_load(&q->wake_at)) {
        atomic_store(&q->wake_at, UINT64_MAX);
        atomic_fetch_add(&q->done, 1);
        choir__futex_wake(&q->done);
    }
}

static bool must_wait(const choir__queue *q);

/* Runs tasks up to the place `until`, or the first that must wait if it may not; the caller
 * holds `running`, which this gives back. */
static void run_tasks(choir__queue *q, uint64_t until, bool may_wait)
{
    choir__queue *outer = current;
    current = q;
    if (finished(q) < until)
        begin_busy(q);
    if (q->opts.enter)
        q->opts.enter(q->opts.arg);
    while (finished(q) < until && (may_wait || !must_wait(q)))
        run_next(q, until);
    atomic_store(&q->running, 0);
    current = outer;
    if (outer) { /* we ran on behalf of another queue's wait: its context is current again */
        if (outer->opts.enter)
            outer->opts.enter(outer->opts.arg);
    }
}

static void run_until(choir__queue *q, uint64_t until)
{
    run_tasks(q, until, true);
}

static void sleep_until(choir__queue *q, uint64_t place)
{
    unsigned seen = atomic_load(&q->done);
    uint64_t at = atomic_load(&q->wake_at);
    while (at > place && !atomic_compare_exchange_weak(&q->wake_at, &at, place))
        ;
    if (finished(q) < place)
        choir__futex_wait(&q->done, seen, LONG_US);
}

/* Until the tasks up to a place have been run. */
static void wait_for_tasks(choir__queue *q, uint64_t place)
{
    for (int spins = 0; finished(q) < place; spins++) {
        if (!q->opts.worker_only && try_running(q))
            run_until(q, place);
        else if (spins < SPINS)
            choir__pause();
        else
            sleep_until(q, place);
    }
}

static void stop_with(choir__queue *q, choir_status status, const char *message);
static void blame(const choir__queue *q, choir_status status);

static void note_trouble(choir__queue *q, choir_status status)
{
    if (status == CHOIR_OK || atomic_load(&q->status) != CHOIR_OK)
        return;
    blame(q, status);
    stop_with(q, status, choir_error_message());
}

/* Until the stream, if there is one, has reached a place whose tasks have been run. */
static void wait_for_stream(choir__queue *q, uint64_t place)
{
    choir__stream *s = q->opts.stream;
    if (!s)
        return;
    note_trouble(q, s->ops->wait(s, place, finished(q)));
    uint64_t busy = (uint64_t)(s->ops->busy_s(s) * 1e9);
    atomic_store_explicit(&q->busy_ns, busy, memory_order_relaxed);
    atomic_store_explicit(&q->gauges->busy_ns, busy, memory_order_relaxed);
}

static void wait_for(choir__queue *q, uint64_t place)
{
    wait_for_tasks(q, place);
    wait_for_stream(q, place);
}

/* --- the worker --- */

static void pin(const choir__queue *q)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < q->opts.core_count; i++)
        CPU_SET(q->opts.cores[i], &set);
    if (q->opts.core_count > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void sleep_for_work(choir__queue *q)
{
    unsigned seen = atomic_load(&q->bell);
    atomic_store(&q->asleep, true);
    if (finished(q) == atomic_load(&q->issued) && !atomic_load(&q->stop))
        choir__futex_wait(&q->bell, seen, 10 * LONG_US);
    atomic_store(&q->asleep, false);
}

static void *work(void *arg)
{
    choir__queue *q = arg;
    pin(q);
    for (;;) {
        uint64_t issued = atomic_load(&q->issued);
        if (finished(q) == issued) {
            if (atomic_load(&q->stop))
                return NULL;
            sleep_for_work(q);
            continue;
        }
        if (!q->opts.worker_only) /* let a host that is about to wait have it */
            choir__futex_wait(&q->bell, atomic_load(&q->bell), q->opts.patience_us);
        if (finished(q) < issued && try_running(q))
            run_until(q, issued);
    }
}

static void ring_bell(choir__queue *q)
{
    atomic_fetch_add(&q->bell, 1);
    choir__futex_wake(&q->bell);
}

/* Under issue_lock. */
static void start_worker(choir__queue *q)
{
    atomic_store(&q->stop, false);
    q->started = pthread_create(&q->worker, NULL, work, q) == 0;
    if (!q->started)
        q->opts.worker_only = false; /* no thread to be had: whoever waits runs everything */
}

static void stop_worker(choir__queue *q)
{
    wait_for(q, atomic_load(&q->issued));
    if (!q->started)
        return;
    atomic_store(&q->stop, true);
    ring_bell(q);
    pthread_join(q->worker, NULL);
    q->started = false;
}

/* --- issuing --- */

/* Where `bytes` contiguous bytes can be written, or NULL while the ring is too full. The ring
 * is empty when write == read, and is never filled so far that the two would meet. */
static task *reserve(choir__queue *q, size_t bytes)
{
    size_t read = atomic_load_explicit(&q->read, memory_order_acquire);
    bool again = q->write == read && q->write > HOT_BYTES && read > bytes;
    if (q->write < read)
        return read - q->write > bytes ? (task *)(q->ring + q->write) : NULL;
    if (!again && RING_BYTES - q->write >= bytes + sizeof(task)) /* room for a mark behind it */
        return (task *)(q->ring + q->write);
    if (read <= bytes)
        return NULL;
    ((task *)(q->ring + q->write))->fn = NULL;
    q->write = 0;
    return (task *)q->ring;
}

/* The issuer of a stream's task runs it; what must wait is left to the worker. */
static void run_at_once(choir__queue *q, uint64_t issued)
{
    if (finished(q) < issued && try_running(q))
        run_tasks(q, issued, false);
    if (finished(q) < issued)
        ring_bell(q);
}

void choir__queue_issue_raw(choir__queue *q, choir__task *fn, const void *args, size_t bytes)
{
    size_t need = (sizeof(task) + bytes + 15) & ~(size_t)15;
    pthread_mutex_lock(&q->issue_lock);
    task *t;
    while (!(t = reserve(q, need))) { /* full: help, or wait for half of it to drain */
        uint64_t issued = atomic_load(&q->issued), done = finished(q);
        pthread_mutex_unlock(&q->issue_lock);
        wait_for_tasks(q, done + (issued - done + 1) / 2);
        pthread_mutex_lock(&q->issue_lock);
    }
    t->fn = fn;
    t->bytes = (uint32_t)need;
    t->issued_ms = q->opts.timed ? coarse_ms() : 0;
    if (bytes)
        memcpy(t->args, args, bytes);
    q->write += need;
    uint64_t issued = atomic_fetch_add(&q->issued, 1) + 1;
    atomic_store_explicit(&q->gauges->issued, issued, memory_order_relaxed);
    if (!q->started)
        start_worker(q);
    pthread_mutex_unlock(&q->issue_lock);
    if (q->opts.stream)
        run_at_once(q, issued);
    else if (atomic_load(&q->asleep))
        ring_bell(q);
}

void choir__queue_issue(choir__queue *queue, choir__task *fn, const void *args, size_t bytes)
{
    if (queue->opts.null)
        return;
    choir__recording_note_task(queue, fn, args, bytes);
    choir__queue_issue_raw(queue, fn, args, bytes);
}

/* --- events --- */

choir__event choir__queue_record(choir__queue *queue)
{
    choir__event event = {queue, atomic_load(&queue->issued)};
    choir__stream *s = queue->opts.stream;
    if (s && finished(queue) == event.seq) /* else who waits has it marked, a little later */
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
    if (atomic_fetch_sub(&q->holders, 1) == 1)
        free(q);
}

static void let_go_of_awaited(const void *args)
{
    choir__queue_let_go(((const choir__event *)args)->queue);
}

/* The first failure of q. */
static void stop_with(choir__queue *q, choir_status status, const char *message)
{
    if (atomic_load(&q->status) != CHOIR_OK)
        return;
    snprintf(q->message, sizeof q->message, "%s", message);
    atomic_store(&q->status, status);
}

static bool follows(const choir__queue *q, const choir__queue *other)
{
    return q->opts.stream && other->opts.stream &&
           q->opts.stream->ops == other->opts.stream->ops;
}

/* Whether the host would have to wait in the next task. */
static bool must_wait(const choir__queue *q)
{
    const task *t =
        (const task *)(q->ring + atomic_load_explicit(&q->read, memory_order_relaxed));
    if (!t->fn)
        t = (const task *)q->ring;
    if (t->fn != wait_task)
        return false;
    const choir__event *event = (const choir__event *)t->args;
    return follows(q, event->queue) ? finished(event->queue) < event->seq
                                    : !choir__event_done(*event);
}

static void wait_task(const void *args)
{
    const choir__event *event = args;
    choir__queue *other = event->queue;
    bool follow = follows(current, other);
    if (follow ? finished(other) < event->seq : !choir__event_done(*event)) {
        end_busy(current);
        wait_for_tasks(other, event->seq);
        if (!follow)
            wait_for_stream(other, event->seq);
        begin_busy(current);
    }
    choir__stream *mine = current->opts.stream;
    if (follow)
        mine->ops->follow(mine, other->opts.stream, event->seq, finished(other));
    choir_status status = choir__queue_status(other);
    if (status != CHOIR_OK)
        stop_with(current, status, other->message);
    let_go_of_awaited(args);
}

choir_status choir__queue_wait_event_raw(choir__queue *queue, choir__event event)
{
    if (!event.queue)
        return choir__error(CHOIR_ERR_STATE, "waiting for an event that nobody recorded");
    if (event.queue != queue &&
        !(choir__event_done(event) && choir__queue_status(event.queue) == CHOIR_OK)) {
        choir__queue_hold(event.queue);
        choir__queue_issue_raw(queue, wait_task, &event, sizeof event);
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
    choir__stream *s = event.queue ? event.queue->opts.stream : NULL;
    if (!event.queue || finished(event.queue) < event.seq)
        return false;
    if (!s || s->ops->reached(s) >= event.seq)
        return true;
    s->ops->mark(s, finished(event.queue)); /* unless there is one: for who asks again */
    return false;
}

choir_status choir__event_wait(choir__event event)
{
    if (!event.queue)
        return choir__error(CHOIR_ERR_STATE, "waiting for an event that nobody recorded");
    wait_for(event.queue, event.seq);
    return choir__queue_status(event.queue);
}

choir_status choir__queue_wait(choir__queue *queue)
{
    wait_for(queue, atomic_load(&queue->issued));
    return choir__queue_status(queue);
}

/* --- failure --- */

/* Whose task it was goes before the sentence. */
static void blame(const choir__queue *q, choir_status status)
{
    if (!q->opts.blames)
        return;
    char *why = choir__strdup(choir_error_message());
    choir__error(status, "%s: %s", q->name, why);
    free(why);
}

choir_status choir__queue_fail(choir_status status, const char *format, ...)
{
    choir__queue *q = current;
    va_list args;
    va_start(args, format);
    choir__verror(status, format, args);
    va_end(args);
    if (q)
        blame(q, status);
    if (q)
        stop_with(q, status, choir_error_message());
    return status;
}

void choir__queue_break(choir__queue *queue, choir_status status, const char *sentence)
{
    stop_with(queue, status, sentence);
}

choir_status choir__queue_status(choir__queue *queue)
{
    choir_status status = atomic_load(&queue->status);
    if (status != CHOIR_OK) /* the message was written on another thread, label and all */
        choir__set_message(queue->message);
    return status;
}

choir_status choir__queue_look(choir__queue *queue)
{
    choir__stream *s = queue->opts.stream;
    if (s)
        note_trouble(queue, s->ops->look(s, finished(queue)));
    return choir__queue_status(queue);
}

void choir__queue_set_patience(choir__queue *queue, int patience_us)
{
    queue->opts.patience_us = patience_us;
}

void choir__queue_clear(choir__queue *queue)
{
    wait_for(queue, atomic_load(&queue->issued));
    atomic_store(&queue->status, CHOIR_OK);
}

choir__queue_stats choir__queue_get_stats(choir__queue *queue)
{
    choir__stream *s = queue->opts.stream;
    uint64_t done =
        finished(queue); /* first: what is issued meanwhile is not finished before it */
    if (s)
        done = (uint64_t)choir__min((int64_t)done, (int64_t)s->ops->reached(s));
    return (choir__queue_stats){
        .busy_s = (double)atomic_load(&queue->busy_ns) * 1e-9,
        .issued = atomic_load(&queue->issued),
        .finished = done,
        .moved = atomic_load_explicit(&queue->moved, memory_order_relaxed),
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
    /* Others may go on issuing: who watched until now must not meet the new arg. */
    atomic_store(&queue->observer, NULL);
    wait_for(queue, atomic_load(&queue->issued));
    queue->observer_arg = arg;
    atomic_store_explicit(&queue->observer, fn, memory_order_release);
}

bool choir__queue_observed(choir__queue *queue)
{
    return atomic_load(&queue->observer) != NULL;
}

/* --- streams --- */

bool choir__queue_captures(choir__queue *queue, choir__task *fn, const void *args)
{
    return queue->opts.capturable ? queue->opts.capturable(fn, args)
                                  : queue->opts.stream->ops->capturable(fn, args);
}

choir__stream *choir__queue_stream(choir__queue *queue)
{
    return queue->opts.stream;
}

void choir__queue_take(choir__queue *q)
{
    do
        wait_for_tasks(q, atomic_load(&q->issued));
    while (!try_running(q));
}

void choir__queue_give_back(choir__queue *q)
{
    atomic_store(&q->running, 0);
    ring_bell(q); /* something may have been issued meanwhile */
}

void choir__queue_run_now(choir__queue *q, choir__task *fn, const void *args, size_t bytes)
{
    choir__queue *outer = current;
    current = q;
    if (q->opts.enter)
        q->opts.enter(q->opts.arg);
    call(q, fn, args, bytes);
    current = outer;
    if (outer && outer->opts.enter)
        outer->opts.enter(outer->opts.arg);
}

static void enter_stream(void *arg)
{
    choir__stream *s = arg;
    s->ops->enter(s);
}

/* --- life --- */

choir__queue *choir__queue_new(choir__queue_opts opts)
{
    choir__queue *q = choir__calloc(1, sizeof *q);
    q->opts = opts;
    strncpy(q->name, opts.name ? opts.name : "queue", sizeof q->name - 1);
    q->opts.name = q->name;
    q->gauges = opts.gauges ? opts.gauges : &q->unseen;
    if (!q->opts.patience_us)
        q->opts.patience_us = opts.stream ? STREAM_NAP_US : NAP_US;
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
    atomic_store(&q->wake_at, UINT64_MAX);
    atomic_store(&q->holders, 1);
    pthread_mutex_lock(&registry_lock);
    q->next = registry;
    registry = q;
    pthread_mutex_unlock(&registry_lock);
    return q;
}

/* Another queue may not have got to its wait for a task of this one, which is done: it asks, so
 * the counters outlive the rest. */
void choir__queue_free(choir__queue *q)
{
    if (!q)
        return;
    stop_worker(q);
    choir__recordings_lose(q);
    if (q->opts.stream)
        q->opts.stream->ops->free(q->opts.stream);
    q->opts.stream = NULL; /* what is left of the queue has reached every place */
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
    atomic_store(&q->status, CHOIR_OK); /* who still asks wants no more than to go on */
    choir__queue_let_go(q);
}

void choir__queue_place(choir__queue *q, const int *cores)
{
    memcpy((int *)q->opts.cores, cores, (size_t)q->opts.core_count * sizeof *cores);
}

void choir__queues_quiesce(void)
{
    pthread_mutex_lock(&registry_lock);
    for (choir__queue *q = registry; q; q = q->next)
        stop_worker(q);
    pthread_mutex_unlock(&registry_lock);
}
