/* What a queue is inside: for queue.c, which issues to it and tells of it, and queue_run.c,
 * which runs it.
 *
 * A byte ring of tasks, two counters, and a lock that says who runs it:
 *
 *     issued    tasks copied into the ring          (grows under issue_lock)
 *     finished  tasks whose function has returned   (grows under the runner's lock)
 *               and, where there is a stream, the place it has reached (stream.h)
 *
 * A place in the queue is a value of `issued`; it has been reached when `finished` has caught
 * up. Whoever holds `running` executes tasks. */
#ifndef CHOIR_QUEUE_RUN_H
#define CHOIR_QUEUE_RUN_H

#include <pthread.h>

#include "device/queue.h"
#include "device/stream.h"

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

static inline uint64_t choir__queue_finished(choir__queue *q)
{
    return atomic_load_explicit(&q->finished, memory_order_acquire);
}

/* Whether its stream can wait for the other's without the host. */
static inline bool choir__queue_follows(const choir__queue *q, const choir__queue *other)
{
    return q->opts.stream && other->opts.stream &&
           q->opts.stream->ops == other->opts.stream->ops;
}

/* Until the tasks up to a place have been run, by this thread where nobody else is at it; and
 * until the stream, if there is one, has reached it. */
void choir__queue_wait_for_tasks(choir__queue *q, uint64_t place);
void choir__queue_wait_for(choir__queue *q, uint64_t place);

/* The issuer of a stream's task runs it; what must wait is left to the worker. */
void choir__queue_run_at_once(choir__queue *q, uint64_t issued);

/* The task that waits for an event, whose queue is held until it has. */
choir__task choir__queue_wait_task;

/* What the stream said, if it is the queue's first trouble, becomes its failure. */
void choir__queue_note_trouble(choir__queue *q, choir_status status);

/* Under issue_lock. */
void choir__queue_start_worker(choir__queue *q);
void choir__queue_stop_worker(choir__queue *q); /* drains */
void choir__queue_ring_bell(choir__queue *q);

#endif
