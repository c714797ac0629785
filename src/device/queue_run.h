/* The inside of a queue, for queue.c, which issues to it and reports on it, and queue_run.c,
 * which runs it.
 *
 * A queue is a byte ring of tasks, two counters, and a lock that decides which thread runs it:
 *
 *     issued    tasks copied into the ring          (grows under issue_lock)
 *     finished  tasks whose function has returned   (grows under the runner's lock)
 *               and, where there is a stream, the place it has reached (stream.h)
 *
 * A place in the queue is a value of `issued`; it is reached when `finished` is at least that
 * value. The thread that holds `running` executes tasks. */
#ifndef CHOIR_QUEUE_RUN_H
#define CHOIR_QUEUE_RUN_H

#include <pthread.h>

#include "device/queue.h"
#include "device/stream.h"

typedef struct task {
    choir__task *fn;    /* NULL: the rest of the ring is unused, continue at its start */
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
    _Atomic uint64_t wake_at; /* the nearest place that a sleeping thread waits for */
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
    double looked;                       /* its last reading of the clock */
    bool fresh;                          /* no task has begun since that reading */
    const task *running_task;            /* the current or last task */
    choir__queue_gauges *gauges, unseen; /* opts.gauges, or else &unseen */
    choir__observer *_Atomic observer;
    void *observer_arg;
    _Atomic uint64_t moved;
    atomic_int holders; /* its owner; other queues' pending waits for it; blocks */
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
 * thread if no other thread runs them. choir__queue_wait_for also waits until the stream, if
 * there is one, has reached the place. */
void choir__queue_wait_for_tasks(choir__queue *q, uint64_t place);
void choir__queue_wait_for(choir__queue *q, uint64_t place);

/* Runs the tasks of a queue with a stream on the issuing thread; from the first task that must
 * wait, the worker runs them. */
void choir__queue_run_at_once(choir__queue *q, uint64_t issued);

/* The task that waits for an event. The event's queue is held until then. */
choir__task choir__queue_wait_task;

/* Makes a stream's error the queue's failure if the queue has none yet. */
void choir__queue_note_trouble(choir__queue *q, choir_status status);

/* Called under issue_lock. */
void choir__queue_start_worker(choir__queue *q);
void choir__queue_stop_worker(choir__queue *q); /* drains the queue first */
void choir__queue_ring_bell(choir__queue *q);

#endif
