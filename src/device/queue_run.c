/* Running a queue's tasks, and waiting for them.
 *
 * A waiter takes `running` if it is free, else sleeps until `finished` reaches its place. The
 * worker sleeps while there is nothing to do. Once woken, it delays before it takes an idle
 * queue, because a host that issues work usually waits for it soon and then runs it itself. */
#include "device/queue_run.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/futex.h"

enum {
    SPINS = 300,
    LONG_US = 100000, /* a sleeper looks again after this time, in case a wake-up was lost */
};

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

double choir__queue_issued(void)
{
    if (!current || !current->opts.timed)
        return 0;
    uint32_t now = (uint32_t)(uint64_t)(current->looked * 1e3);
    int32_t ago = (int32_t)(now - current->running_task->issued_ms);
    return current->looked - (ago > 0 ? ago * 1e-3 : 0);
}

/* A stream measures its own busy time. */
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

/* --- failing --- */

/* Puts the name of the task's queue before the message. */
static void blame(const choir__queue *q, choir_status status)
{
    if (!q->opts.blames)
        return;
    char *why = choir__strdup(choir__message());
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
    if (q) {
        blame(q, status);
        choir__queue_break(q, status, choir__message());
    }
    return status;
}

void choir__queue_note_trouble(choir__queue *q, choir_status status)
{
    if (status == CHOIR_OK || atomic_load(&q->status) != CHOIR_OK)
        return;
    blame(q, status);
    choir__queue_break(q, status, choir__message());
}

/* --- waiting for a stream, and for other queues --- */

/* Waits until the stream, if there is one, has reached a place whose tasks have been run. */
static void wait_for_stream(choir__queue *q, uint64_t place)
{
    choir__stream *s = q->opts.stream;
    if (!s)
        return;
    choir__queue_note_trouble(q, s->ops->wait(s, place, choir__queue_finished(q)));
    uint64_t busy = (uint64_t)(s->ops->busy_s(s) * 1e9);
    atomic_store_explicit(&q->busy_ns, busy, memory_order_relaxed);
    atomic_store_explicit(&q->gauges->busy_ns, busy, memory_order_relaxed);
}

static void let_go_of_awaited(const void *args)
{
    choir__queue_let_go(((const choir__event *)args)->queue);
}

/* Returns true if the next task would make the host wait. */
static bool must_wait(const choir__queue *q)
{
    const task *t =
        (const task *)(q->ring + atomic_load_explicit(&q->read, memory_order_relaxed));
    if (!t->fn)
        t = (const task *)q->ring;
    if (t->fn != choir__queue_wait_task)
        return false;
    const choir__event *event = (const choir__event *)t->args;
    return choir__queue_follows(q, event->queue)
               ? choir__queue_finished(event->queue) < event->seq
               : !choir__event_done(*event);
}

void choir__queue_wait_task(const void *args)
{
    const choir__event *event = args;
    choir__queue *other = event->queue;
    bool follow = choir__queue_follows(current, other);
    if (follow ? choir__queue_finished(other) < event->seq : !choir__event_done(*event)) {
        end_busy(current);
        choir__queue_wait_for_tasks(other, event->seq);
        if (!follow)
            wait_for_stream(other, event->seq);
        begin_busy(current);
    } else if (!follow) {
        /* does not wait: it only collects errors up to the event */
        wait_for_stream(other, event->seq);
    }
    choir__stream *mine = current->opts.stream;
    if (follow)
        mine->ops->follow(mine, other->opts.stream, event->seq, choir__queue_finished(other));
    choir_status status = choir__queue_status(other);
    if (status != CHOIR_OK)
        choir__queue_break(current, status, other->message);
    let_go_of_awaited(args);
}

/* --- running --- */

static bool try_running(choir__queue *q)
{
    int free = 0;
    return !atomic_load_explicit(&q->running, memory_order_relaxed) &&
           atomic_compare_exchange_strong(&q->running, &free, 1);
}

static void call(choir__queue *q, choir__task *fn, const void *args, size_t bytes)
{
    fn(args);
    if (q->opts.stream)
        q->opts.stream->ops->ran(q->opts.stream, fn, args, bytes);
}

/* Runs one task. An observed queue with a stream runs its tasks one by one, without overlap. */
static void run_task(choir__queue *q, const task *t)
{
    choir__observer *observer = atomic_load_explicit(&q->observer, memory_order_acquire);
    if (t->fn == choir__queue_wait_task) {
        t->fn(t->args);
        return;
    }
    if (!observer) {
        call(q, t->fn, t->args, t->bytes - sizeof *t);
        return;
    }
    uint64_t before = choir__queue_finished(q);
    wait_for_stream(q, before);
    double start = choir__now();
    call(q, t->fn, t->args, t->bytes - sizeof *t);
    if (q->opts.stream)
        choir__queue_note_trouble(
            q, q->opts.stream->ops->wait(q->opts.stream, before + 1, before + 1));
    observer(q->observer_arg, t->fn, t->args, start, choir__now());
}

/* Runs the next task. The last task before `until` adds the turn's busy time before it counts
 * as finished, since a waiter may read the sum at once. */
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
    } else if (t->fn == choir__queue_wait_task) {
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

/* q NULL: the thread runs no queue. */
static void make_current(choir__queue *q)
{
    current = q;
    if (q && q->opts.enter)
        q->opts.enter(q->opts.arg);
}

/* Runs tasks up to the place `until`; if may_wait is false, only up to the first task that must
 * wait. The caller holds `running`, which this releases. */
static void run_tasks(choir__queue *q, uint64_t until, bool may_wait)
{
    choir__queue *outer = current;
    if (choir__queue_finished(q) < until)
        begin_busy(q);
    make_current(q);
    while (choir__queue_finished(q) < until && (may_wait || !must_wait(q)))
        run_next(q, until);
    atomic_store(&q->running, 0);
    make_current(outer); /* this may have run inside another queue's wait */
}

static void run_until(choir__queue *q, uint64_t until)
{
    run_tasks(q, until, true);
}

/* --- waiters run tasks, or sleep --- */

static void sleep_until(choir__queue *q, uint64_t place)
{
    unsigned seen = atomic_load(&q->done);
    uint64_t at = atomic_load(&q->wake_at);
    while (at > place && !atomic_compare_exchange_weak(&q->wake_at, &at, place))
        ;
    if (choir__queue_finished(q) < place)
        choir__futex_wait(&q->done, seen, LONG_US);
}

/* Returns when the tasks up to a place have been run. */
void choir__queue_wait_for_tasks(choir__queue *q, uint64_t place)
{
    for (int spins = 0; choir__queue_finished(q) < place; spins++) {
        if (!q->opts.worker_only && try_running(q))
            run_until(q, place);
        else if (spins < SPINS)
            choir__pause();
        else
            sleep_until(q, place);
    }
}

void choir__queue_wait_for(choir__queue *q, uint64_t place)
{
    choir__queue_wait_for_tasks(q, place);
    wait_for_stream(q, place);
}

/* --- a thread that is the runner for some time --- */

/* Runs the tasks of a queue with a stream on the issuing thread; from the first task that must
 * wait, the worker runs them. */
void choir__queue_run_at_once(choir__queue *q, uint64_t issued)
{
    if (choir__queue_finished(q) < issued && try_running(q))
        run_tasks(q, issued, false);
    if (choir__queue_finished(q) < issued)
        choir__queue_ring_bell(q);
}

void choir__queue_take(choir__queue *q)
{
    do
        choir__queue_wait_for_tasks(q, atomic_load(&q->issued));
    while (!try_running(q));
}

void choir__queue_give_back(choir__queue *q)
{
    atomic_store(&q->running, 0);
    choir__queue_ring_bell(q); /* tasks may have been issued meanwhile */
}

void choir__queue_run_now(choir__queue *q, choir__task *fn, const void *args, size_t bytes)
{
    choir__queue *outer = current;
    make_current(q);
    call(q, fn, args, bytes);
    make_current(outer);
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
    if (choir__queue_finished(q) == atomic_load(&q->issued) && !atomic_load(&q->stop))
        choir__futex_wait(&q->bell, seen, 10 * LONG_US);
    atomic_store(&q->asleep, false);
}

static void *work(void *arg)
{
    choir__queue *q = arg;
    pin(q);
    for (;;) {
        uint64_t issued = atomic_load(&q->issued);
        if (choir__queue_finished(q) == issued) {
            if (atomic_load(&q->stop))
                return NULL;
            sleep_for_work(q);
            continue;
        }
        if (!q->opts.worker_only) /* leaves the tasks to a host that is about to wait */
            choir__futex_wait(&q->bell, atomic_load(&q->bell), q->opts.patience_us);
        if (choir__queue_finished(q) < issued && try_running(q))
            run_until(q, issued);
    }
}

void choir__queue_ring_bell(choir__queue *q)
{
    atomic_fetch_add(&q->bell, 1);
    choir__futex_wake(&q->bell);
}

/* Under issue_lock. */
void choir__queue_start_worker(choir__queue *q)
{
    atomic_store(&q->stop, false);
    q->started = pthread_create(&q->worker, NULL, work, q) == 0;
    if (!q->started)
        q->opts.worker_only = false; /* no thread available: waiters run everything */
}

void choir__queue_stop_worker(choir__queue *q)
{
    choir__queue_wait_for(q, atomic_load(&q->issued));
    if (!q->started)
        return;
    atomic_store(&q->stop, true);
    choir__queue_ring_bell(q);
    pthread_join(q->worker, NULL);
    q->started = false;
}
