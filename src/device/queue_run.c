/* Running a queue's tasks, and waiting for them.
 *
 * A waiter takes `running` if it is free, else sleeps until `finished` reaches its place or the
 * runner leaves tasks to it. queue_run.h has the protocol. */
#include "device/queue_run.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/floats.h"
#include "base/futex.h"

enum {
    SPINS = 300,
    LONG_US = 1000000, /* a sleeper looks again after this time, in case a wake-up was lost */
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

/* Waits until the stream, if any, has reached a place whose tasks have been run. */
static void wait_for_stream(choir__queue *q, uint64_t place)
{
    choir__gpu_stream *s = q->opts.stream;
    if (!s)
        return;
    choir__queue_note_trouble(q, s->ops->wait(s, place, choir__queue_finished(q)));
    uint64_t busy = (uint64_t)(s->ops->busy_s(s) * 1e9);
    atomic_store_explicit(&q->busy_ns, busy, memory_order_relaxed);
    atomic_store_explicit(&q->gauges->busy_ns, busy, memory_order_relaxed);
}

/* For the runner: returns the event for which the queue's first task waits, or NULL. */
static const choir__event *awaited(choir__queue *q)
{
    if (atomic_load(&q->finished) == atomic_load(&q->issued))
        return NULL;
    const task *t =
        (const task *)(q->ring + atomic_load_explicit(&q->read, memory_order_relaxed));
    if (!t->fn)
        t = (const task *)q->ring;
    return t->fn == choir__queue_wait_task ? (const choir__event *)t->args : NULL;
}

bool choir__queue_blocked(choir__queue *q, choir__event *first)
{
    const choir__event *event = awaited(q);
    if (!event || choir__queue_finished(event->queue) >= event->seq)
        return false;
    *first = *event;
    return true;
}

/* For the runner: returns true if the first task would make the host wait: as
 * choir__queue_blocked, and also for a stream that is behind its queue. */
static bool must_wait(choir__queue *q)
{
    choir__event first;
    const choir__event *event = awaited(q);
    if (!event || choir__queue_follows(q, event->queue))
        return choir__queue_blocked(q, &first);
    return !choir__event_done(*event);
}

/* Runs when the other queue's tasks have been run; its stream may still be behind. */
void choir__queue_wait_task(const void *args)
{
    const choir__event *event = args;
    choir__queue *other = event->queue;
    bool follow = choir__queue_follows(current, other);
    if (current->at_once) /* no keeper has seen to it that the event has come */
        choir__queue_wait_for_tasks(other, event->seq);
    if (!follow && !choir__event_done(*event)) {
        end_busy(current);
        wait_for_stream(other, event->seq);
        begin_busy(current);
    } else if (!follow) {
        /* does not wait: it only collects errors up to the event */
        wait_for_stream(other, event->seq);
    }
    choir__gpu_stream *mine = current->opts.stream;
    if (follow)
        mine->ops->follow(mine, other->opts.stream, event->seq, choir__queue_finished(other));
    choir_status status = choir__queue_status(other);
    if (status != CHOIR_OK)
        choir__queue_break(current, status, other->message);
    choir__queue_let_go(other);
}

/* --- running --- */

bool choir__queue_try_running(choir__queue *q)
{
    int free = 0;
    return !atomic_load(&q->running) && atomic_compare_exchange_strong(&q->running, &free, 1);
}

static void call(choir__queue *q, choir__queue_task *fn, const void *args, size_t bytes)
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

void choir__queue_wake_sleepers(choir__queue *q)
{
    atomic_fetch_add(&q->done, 1);
    if (atomic_load(&q->sleepers))
        choir__futex_wake(&q->done);
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
    if (atomic_load_explicit(&q->status, memory_order_relaxed) == CHOIR_OK ||
        t->fn == choir__queue_wait_task) { /* memory that others read may be free after it */
        q->fresh = false;
        q->running_task = t;
        run_task(q, t);
    }
    atomic_store_explicit(&q->read, at + t->bytes, memory_order_release);
    uint64_t now = atomic_load_explicit(&q->finished, memory_order_relaxed) + 1;
    if (now == until)
        end_busy(q);
    atomic_store(&q->finished, now);
    atomic_store_explicit(&q->gauges->finished, now, memory_order_relaxed);
    if (now >= atomic_load(&q->wake_at)) {
        atomic_store(&q->wake_at, UINT64_MAX);
        choir__queue_wake_sleepers(q);
        choir__queue_call_watchers(q, now);
    }
}

/* q NULL: the thread runs no queue. */
static void make_current(choir__queue *q)
{
    current = q;
    if (q && q->opts.enter)
        q->opts.enter(q->opts.arg);
}

void choir__queue_call(choir__queue *q, choir__queue_task *fn, const void *args)
{
    CHOIR__DEFAULT_FLOATS;
    choir__queue *outer = current;
    make_current(q);
    q->looked = 0;
    fn(args);
    make_current(outer);
}

void choir__queue_run(choir__queue *q, uint64_t until, bool may_wait)
{
    CHOIR__DEFAULT_FLOATS;
    choir__queue *outer = current;
    choir__event first;
    if (choir__queue_finished(q) >= until)
        return;
    begin_busy(q);
    choir__queue_put_off_worker(q);
    make_current(q);
    while (choir__queue_finished(q) < until &&
           !(may_wait ? choir__queue_blocked(q, &first) : must_wait(q)))
        run_next(q, until);
    if (choir__queue_finished(q) < until)
        end_busy(q);
    make_current(outer); /* this may have run inside another queue's task */
}

void choir__queue_stop_running(choir__queue *q)
{
    atomic_store(&q->running, 0);
    if (atomic_load(&q->sleepers) && !q->opts.worker_only &&
        atomic_load(&q->finished) != atomic_load(&q->issued))
        choir__queue_wake_sleepers(q);
}

/* --- waiters run tasks, or sleep --- */

/* Sleeps until the place is reached, or the queue's runner leaves tasks. */
static void sleep_until(choir__queue *q, uint64_t place)
{
    atomic_fetch_add(&q->sleepers, 1);
    unsigned seen = atomic_load(&q->done);
    choir__queue_wake_at(q, place);
    if (atomic_load(&q->finished) < place && (q->opts.worker_only || atomic_load(&q->running)))
        choir__futex_wait(&q->done, seen, LONG_US);
    atomic_fetch_sub(&q->sleepers, 1);
}

/* Ends the caller's turn as the runner of q. If q's first task waits for another queue, waits
 * for that one, and does not keep other threads from running q meanwhile. Returns whether it
 * did. */
static bool wait_for_other(choir__queue *q)
{
    choir__event first;
    if (!choir__queue_blocked(q, &first)) {
        choir__queue_stop_running(q);
        choir__queue_find_keeper(q);
        return false;
    }
    choir__queue_hold(first.queue);
    atomic_fetch_add(&q->waiters, 1);
    atomic_store(&q->running, 0); /* sleepers may sleep on: this thread comes back */
    choir__queue_find_keeper(q);  /* for a queue that only the worker may run */
    choir__queue_wait_for_tasks(first.queue, first.seq);
    choir__queue_let_go(first.queue);
    atomic_fetch_sub(&q->waiters, 1);
    return true;
}

/* Runs tasks up to the place if no other thread runs any, or the queue that has to go first.
 * Returns false if the caller has to sleep. */
static bool run_towards(choir__queue *q, uint64_t place)
{
    bool worker_only = q->opts.worker_only;
    if (worker_only && atomic_load(&q->promised) != CHOIR__QUEUE_WATCHES)
        return false;
    if (!choir__queue_try_running(q))
        return false;
    if (!worker_only)
        choir__queue_run(q, place, true);
    if (choir__queue_finished(q) < place)
        return wait_for_other(q) || !worker_only;
    choir__queue_stop_running(q);
    return true;
}

static void run_or_sleep(choir__queue *q, uint64_t place)
{
    for (int spins = 0; choir__queue_finished(q) < place; spins++)
        if (run_towards(q, place))
            spins = 0;
        else if (spins < SPINS)
            choir__pause();
        else
            sleep_until(q, place);
}

/* Returns when the tasks up to a place have been run. */
void choir__queue_wait_for_tasks(choir__queue *q, uint64_t place)
{
    if (choir__queue_finished(q) >= place)
        return;
    if (!run_towards(q, place) || choir__queue_finished(q) < place) {
        atomic_fetch_add(&q->waiters, 1);
        run_or_sleep(q, place);
        atomic_fetch_sub(&q->waiters, 1);
    }
    choir__queue_find_keeper(q);
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
    if (choir__queue_finished(q) < issued && choir__queue_try_running(q)) {
        choir__queue_run(q, issued, false);
        choir__queue_stop_running(q);
    }
    choir__queue_find_keeper(q);
}

void choir__queue_take(choir__queue *q)
{
    do
        choir__queue_wait_for_tasks(q, atomic_load(&q->issued));
    while (!choir__queue_try_running(q));
}

void choir__queue_give_back(choir__queue *q)
{
    choir__queue_stop_running(q);
    choir__queue_find_keeper(q); /* tasks may have been issued meanwhile */
}

void choir__queue_run_now(
    choir__queue *q, choir__queue_task *fn, const void *args, size_t bytes)
{
    CHOIR__DEFAULT_FLOATS;
    choir__queue *outer = current;
    make_current(q);
    call(q, fn, args, bytes);
    make_current(outer);
}
