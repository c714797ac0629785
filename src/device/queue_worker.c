/* A queue's worker thread, the alarm that wakes it, and the watches of queues that wait for
 * each other. queue_run.h has the protocol.
 *
 * The worker leaves the tasks to a waiter for `patience_us`, because a host that issues work
 * usually waits for it soon and then runs it itself. */
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hold_signals.h"
#include "device/queue_run.h"

/* The runner does not put the alarm off more often: a call of the kernel costs as much as a
 * small task. */
static const double PUT_OFF_EVERY_S = 100e-6;

/* --- alarm --- */

/* Makes the promise, unless one exists. */
static bool promise(choir__queue *q, int who)
{
    int none = CHOIR__NO_KEEPER;
    return atomic_compare_exchange_strong(&q->promised, &none, who);
}

static bool end_promise(choir__queue *q, int who)
{
    return atomic_compare_exchange_strong(&q->promised, &who, CHOIR__NO_KEEPER);
}

static void set_alarm(choir__queue *q, bool at_once)
{
    if (q->alarm.fd < 0 || !promise(q, CHOIR__WORKER_CALLED))
        return;
    choir__alarm_set(
        &q->alarm, at_once || q->opts.worker_only
                       ? 0
                       : atomic_load_explicit(&q->patience_us, memory_order_relaxed));
    if (atomic_load(&q->stop)) /* this call may have delayed another call */
        choir__alarm_set(&q->alarm, 0);
}

/* A worker waits for this queue, so it is no use to leave the tasks to a waiter. */
static void hurry(choir__queue *q)
{
    choir__queue_call_worker(q, true);
    if (atomic_load(&q->promised) == CHOIR__WORKER_CALLED)
        choir__alarm_set(&q->alarm, 0);
}

/* In this order: an alarm that another thread sets meanwhile either stays, or its promise ends
 * here, too. */
void choir__queue_put_off_worker(choir__queue *q)
{
    if (atomic_load_explicit(&q->promised, memory_order_relaxed) != CHOIR__WORKER_CALLED)
        return;
    double now = q->opts.stream ? choir__now() : q->looked; /* runners of streams do not look */
    if (now - q->put_off <= PUT_OFF_EVERY_S)
        return;
    choir__alarm_put_off(&q->alarm);
    end_promise(q, CHOIR__WORKER_CALLED);
    q->put_off = now;
}

/* --- watches --- */

/* Makes the event's queue find q a keeper when the event comes. */
static void watch(choir__queue *q, choir__event event, bool at_once)
{
    choir__queue *other = event.queue;
    if (!promise(q, CHOIR__QUEUE_WATCHES))
        return;
    choir__queue_hold(q);
    pthread_mutex_lock(&other->watch_lock);
    int count = atomic_load(&other->watch_count);
    CHOIR__GROW(other->watches, count);
    other->watches[count] = (choir__watch){q, event.seq, at_once};
    atomic_store(&other->watch_count, count + 1);
    pthread_mutex_unlock(&other->watch_lock);
    if (q->opts.worker_only && atomic_load(&q->sleepers))
        choir__queue_wake_sleepers(q); /* this queue's sleepers wait for the other queue */
    choir__queue_wake_at(other, event.seq);
    if (at_once)
        hurry(other);
    uint64_t finished = atomic_load(&other->finished);
    if (finished >= event.seq) /* perhaps since before the watch was there */
        choir__queue_call_watchers(other, finished);
}

/* Removes a watch that waits for a place up to `place`. */
static bool take_watch(choir__queue *q, uint64_t place, choir__watch *taken)
{
    bool found = false;
    pthread_mutex_lock(&q->watch_lock);
    int count = atomic_load(&q->watch_count);
    for (int i = 0; i < count && !found; i++)
        if (q->watches[i].place <= place) {
            *taken = q->watches[i];
            q->watches[i] = q->watches[count - 1];
            atomic_store(&q->watch_count, count - 1);
            found = true;
        }
    for (int i = 0; i < count && !found; i++)
        choir__queue_wake_at(q, q->watches[i].place);
    pthread_mutex_unlock(&q->watch_lock);
    return found;
}

void choir__queue_call_watchers(choir__queue *q, uint64_t place)
{
    choir__watch w;
    while (atomic_load(&q->watch_count) && take_watch(q, place, &w)) {
        end_promise(w.queue, CHOIR__QUEUE_WATCHES);
        choir__queue_call_worker(w.queue, w.at_once);
        choir__queue_let_go(w.queue);
    }
}

/* --- the worker --- */

void choir__queue_call_worker(choir__queue *q, bool at_once)
{
    while (choir__queue_lacks_keeper(q) && choir__queue_try_running(q)) {
        choir__event first = {0};
        bool any = atomic_load(&q->finished) != atomic_load(&q->issued);
        if (any && choir__queue_blocked(q, &first))
            choir__queue_hold(first.queue);
        choir__queue_stop_running(q); /* first: the worker may begin at once */
        if (first.queue) {
            watch(q, first, at_once);
            choir__queue_let_go(first.queue);
        } else if (any) {
            set_alarm(q, at_once);
        }
        if (any)
            return;
    }
}

static void pin(const choir__queue *q)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < q->opts.core_count; i++)
        CPU_SET(q->opts.cores[i], &set);
    if (q->opts.core_count > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* Runs tasks until none is left, or other queues have to go first. Returns false if it found no
 * task. */
static bool run_all(choir__queue *q)
{
    choir__event first;
    uint64_t issued, before = choir__queue_finished(q);
    if (before == atomic_load(&q->issued) || !choir__queue_try_running(q))
        return false;
    while (choir__queue_finished(q) < (issued = atomic_load(&q->issued)) &&
           !choir__queue_blocked(q, &first))
        choir__queue_run(q, issued, true);
    bool alone = choir__queue_blocked(q, &first) && !first.queue->started;
    if (alone)
        choir__queue_hold(first.queue);
    choir__queue_stop_running(q);
    if (alone) { /* the other queue has no worker */
        choir__queue_wait_for_tasks(first.queue, first.seq);
        choir__queue_let_go(first.queue);
    }
    choir__queue_call_worker(q, true);
    return choir__queue_finished(q) > before;
}

static void *work(void *arg)
{
    choir__queue *q = arg;
    pin(q);
    for (;;) {
        choir__alarm_sleep(&q->alarm);
        end_promise(q, CHOIR__WORKER_CALLED);
        bool ran = run_all(q);
        atomic_fetch_add_explicit(ran ? &q->wakes : &q->idle_wakes, 1, memory_order_relaxed);
        if (atomic_load(&q->stop) && choir__queue_finished(q) == atomic_load(&q->issued))
            return NULL;
    }
}

/* Under issue_lock. Without a thread or an alarm for it, waiters run everything; a queue that
 * no thread waits for then stands still. The alarm stays until the queue's memory goes, since
 * watches may still set it. */
void choir__queue_start_worker(choir__queue *q)
{
    atomic_store(&q->stop, false);
    if (q->alarm_pid != getpid())
        choir__alarm_close(&q->alarm);
    q->alarm_pid = getpid();
    q->started = (q->alarm.fd >= 0 || choir__alarm_open(&q->alarm)) &&
                 choir__thread_start(&q->worker, work, q) == 0;
    if (!q->started) {
        choir__alarm_close(&q->alarm);
        q->opts.worker_only = false;
    }
}

void choir__queue_stop_worker(choir__queue *q)
{
    choir__queue_wait_for(q, atomic_load(&q->issued));
    if (!q->started)
        return;
    atomic_store(&q->stop, true);
    choir__alarm_set(&q->alarm, 0);
    pthread_join(q->worker, NULL);
    q->started = false;
}
