/* The inside of a queue, shared by queue.c (issues tasks, reports), queue_run.c (runs tasks)
 * and queue_worker.c (the worker).
 *
 * A queue is a byte ring of tasks, two counters, and a lock that decides which thread runs it:
 *
 *     issued    tasks copied into the ring          (grows under issue_lock)
 *     finished  tasks whose function has returned   (grows under the runner's lock)
 *               and, where there is a stream, the place it has reached (stream.h)
 *
 * A place in the queue is a value of `issued`; it is reached when `finished` is at least that
 * value. The thread that holds `running` executes tasks.
 *
 * *A queue with tasks always has a keeper*, which makes sure that they run:
 *
 *     a runner      the thread that holds `running`
 *     a waiter      a thread inside choir__queue_wait_for_tasks: it runs the tasks unless
 *                   another thread does. If the first task waits for an event of another queue,
 *                   the waiter gives this queue back and waits for that one in the same way.
 *     the worker    its alarm is set (CHOIR__WORKER_CALLED)
 *     another queue for whose event the first task waits: when the event comes, the runner of
 *                   that queue finds this one a keeper (CHOIR__QUEUE_WATCHES)
 *
 * A thread that has issued a task, stops running, or ends a wait checks whether there is a
 * keeper, and otherwise calls the worker (choir__queue_find_keeper). Each thread first makes
 * its change and then reads the other threads' words, all sequentially consistent, so of two
 * threads that do so at the same time at least one sees the other's change.
 * tests/model/queue.pml explores this.
 *
 * No thread polls. A waiter sleeps until its place is reached, or until a runner leaves tasks
 * to it; the worker sleeps until its alarm goes off, which runners delay. */
#ifndef CHOIR_QUEUE_RUN_H
#define CHOIR_QUEUE_RUN_H

#include <pthread.h>

#include "base/alarm.h"
#include "device/queue.h"
#include "device/stream.h"

/* The keepers that have promised to come: queue.promised. */
enum { CHOIR__NO_KEEPER, CHOIR__WORKER_CALLED, CHOIR__QUEUE_WATCHES };

/* An entry of a queue's watches: another queue, whose first task waits for a place of this one.
 */
typedef struct choir__watch {
    choir__queue *queue;
    uint64_t place;
    bool at_once; /* the waiting queue's worker was running it */
} choir__watch;

typedef struct task {
    choir__queue_task *fn; /* NULL: the rest of the ring is unused, continue at its start */
    uint32_t bytes;        /* bytes of header and arguments */
    uint32_t issued_ms;    /* timed queues: choir__now() in coarse milliseconds, wrapping */
    unsigned char args[];
} task;

struct choir__queue {
    choir__queue_opts opts;
    char name[32];
    unsigned char *ring;
    size_t write;        /* under issue_lock */
    _Atomic size_t read; /* written by the runner */
    pthread_mutex_t issue_lock;
    _Atomic uint64_t issued, finished;
    /* keepers */
    atomic_int running, waiters, promised;
    /* sleeping waiters */
    atomic_uint sleepers, done; /* done: futex, incremented when a sleeper must check again */
    _Atomic uint64_t wake_at;   /* nearest place of a sleeper or a watch */
    /* other queues that wait for places of this one */
    pthread_mutex_t watch_lock;
    choir__watch *watches;
    atomic_int watch_count;
    /* worker */
    pthread_t worker;
    bool started; /* under issue_lock */
    bool at_once; /* choir__queue_run_as_issued */
    atomic_bool stop;
    choir__alarm alarm;
    pid_t alarm_pid;         /* process of the alarm; a forked process makes a new one */
    _Atomic int patience_us; /* how long the worker leaves tasks to a waiter */
    double put_off;          /* time when the runner last delayed the alarm */
    atomic_uint wakes,
        idle_wakes; /* wakes: wake-ups of the worker; idle_wakes: wake-ups without a task */
    /* failure */
    atomic_int status;
    char message[512];
    /* time, by the runner */
    _Atomic uint64_t busy_ns;            /* time in tasks, without waits for other queues */
    double busy_from;                    /* start of the time not counted yet */
    double looked;                       /* the runner's last reading of the clock */
    bool fresh;                          /* no task has begun since that reading */
    const task *running_task;            /* the current or last task */
    choir__queue_gauges *gauges, unseen; /* opts.gauges, or else &unseen */
    choir__observer *_Atomic observer;
    void *observer_arg;
    _Atomic uint64_t moved;
    atomic_int holders; /* users: the owner, pending waits of other queues, blocks */
    choir__queue *next;
};

static inline uint64_t choir__queue_finished(choir__queue *q)
{
    return atomic_load_explicit(&q->finished, memory_order_acquire);
}

/* Returns true if q's stream can wait for the other's without the host. */
static inline bool choir__queue_follows(const choir__queue *q, const choir__queue *other)
{
    return q->opts.stream && other->opts.stream &&
           q->opts.stream->ops == other->opts.stream->ops;
}

/* choir__queue_wait_for_tasks returns when the tasks up to a place have been run, by this
 * thread if no other thread runs them. choir__queue_wait_for also waits until the queue's
 * stream, if any, has reached the place. */
void choir__queue_wait_for_tasks(choir__queue *q, uint64_t place);
void choir__queue_wait_for(choir__queue *q, uint64_t place);

/* Runs the tasks of a queue with a stream on the issuing thread; from the first task that must
 * wait, the worker runs them. */
void choir__queue_run_at_once(choir__queue *q, uint64_t issued);

/* The task that waits for an event. The event's queue is held until then. */
choir__queue_task choir__queue_wait_task;

/* Makes a new queue run each task on the thread that issues it, at once. It has no worker, and
 * is never behind: its events have always come. */
void choir__queue_run_as_issued(choir__queue *q);

/* Runs a task on this thread, as the runner of the queue does. */
void choir__queue_call(choir__queue *q, choir__queue_task *fn, const void *args);

/* Makes a stream's error the queue's failure if the queue has none yet. */
void choir__queue_note_trouble(choir__queue *q, choir_status status);

/* For the runner: returns true, and copies the event into *first, if the queue's first task
 * waits for an event that has not come. */
bool choir__queue_blocked(choir__queue *q, choir__event *first);

/* Lets the runner wake sleepers and look for watches at the place. */
static inline void choir__queue_wake_at(choir__queue *q, uint64_t place)
{
    uint64_t at = atomic_load(&q->wake_at);
    while (at > place && !atomic_compare_exchange_weak(&q->wake_at, &at, place))
        ;
}

bool choir__queue_try_running(choir__queue *q);
void choir__queue_wake_sleepers(choir__queue *q);
/* Ends a turn of the runner, and wakes a sleeping waiter to which it leaves tasks. */
void choir__queue_stop_running(choir__queue *q);
/* Runs tasks up to the place `until`, or the first that must wait: for tasks of another queue,
 * or, if may_wait is false, for anything. The caller is the runner, and stays it. */
void choir__queue_run(choir__queue *q, uint64_t until, bool may_wait);

/* --- queue_worker.c --- */

/* Returns true if the queue has tasks and no keeper. */
static inline bool choir__queue_lacks_keeper(choir__queue *q)
{
    return atomic_load(&q->finished) != atomic_load(&q->issued) &&
           atomic_load(&q->promised) == CHOIR__NO_KEEPER && !atomic_load(&q->running) &&
           (q->opts.worker_only || !atomic_load(&q->waiters));
}

/* Calls the worker if the queue has tasks and no keeper; at_once: the worker does not leave the
 * tasks to a waiter that may come. */
void choir__queue_call_worker(choir__queue *q, bool at_once);

/* To be called by a thread that has issued a task, or is no longer the queue's keeper. */
static inline void choir__queue_find_keeper(choir__queue *q)
{
    if (choir__queue_lacks_keeper(q))
        choir__queue_call_worker(q, false);
}

/* For the runner, as it begins: the worker, if it has been called, may sleep on. */
void choir__queue_put_off_worker(choir__queue *q);
/* For the runner: finds keepers for the queues that wait for a place up to `place`. */
void choir__queue_call_watchers(choir__queue *q, uint64_t place);

/* Called under issue_lock. */
void choir__queue_start_worker(choir__queue *q);
void choir__queue_stop_worker(choir__queue *q); /* drains the queue first */
#endif
