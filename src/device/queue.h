/* In-order queues of work, and events between them.
 *
 * A task is a function and a small block of arguments, copied in when it is issued. One runner
 * at a time executes a queue's tasks, in order. *A thread that waits for a queue runs it*:
 * choir__queue_wait executes the outstanding tasks on the calling thread if no other thread is
 * running them. This holds through chains: if a task waits for another queue, the thread that
 * waits for this queue runs that one. A worker thread serves the queue when no thread waits. It
 * delays a moment before it starts, so the common "issue a step, then read the loss" never
 * crosses between threads. Queues whose work needs the worker's own thread pool (a device of
 * several cores) are run by the worker alone.
 *
 * Tasks of a queue with a stream (stream.h) only issue work to the stream, so the issuing
 * thread runs them at once. If a task has to wait for a host queue, the worker runs it once
 * that queue has reached the place. Such a task is finished when its stream has reached it.
 *
 * An event is a place in a queue. choir__queue_wait_event makes one queue wait for another's.
 *
 * A task that fails calls choir__queue_fail. The first failure sticks to the queue: later tasks
 * are dropped, and every later wait returns it. The queue still waits for the events of other
 * queues, because they may read memory that is freed after a wait for this one.
 *
 * Devices and groups use these queues alike. Issuing is thread-safe. */
#ifndef CHOIR_QUEUE_H
#define CHOIR_QUEUE_H

#include "base/base.h"
#include "device/gauges.h"

typedef struct choir__queue choir__queue;

/* Runs on the queue's current runner. args is the queue's copy, aligned to 16 bytes. */
typedef void choir__queue_task(const void *args);

/* Returns true if a task of a queue with a stream only issues work to the stream and reads
 * nothing that changes between two runs. Such tasks may become a graph. */
typedef bool choir__capturable(choir__queue_task *fn, const void *args);

typedef struct choir__queue_opts {
    const char *name; /* for traces and messages */
    const int *cores; /* the worker's cores */
    int core_count;   /* 0: anywhere */
    bool worker_only; /* tasks need the worker's thread: no other thread may run them */
    /* delay before the worker takes tasks that a waiter could run; 0: the default, a
     * millisecond (20 us with a stream) */
    int patience_us;
    void (*enter)(void *arg); /* called on a thread that becomes the runner; may be NULL */
    void *arg;
    choir__queue_gauges *gauges; /* figures for other processes; NULL: none */
    bool timed;                  /* notes when tasks are issued: choir__queue_issued */
    bool null;                   /* tasks are dropped and count as done */
    bool blames;                 /* failure messages begin with the queue's name */
    /* stream to which tasks issue work (stream.h); the queue owns it and uses the stream's
     * `enter` instead of the one above. NULL: tasks do their work themselves */
    struct choir__gpu_stream *stream;
    /* decides which tasks may become a graph; NULL: the stream's function */
    choir__capturable *capturable;
} choir__queue_opts;

choir__queue *choir__queue_new(choir__queue_opts opts);
void choir__queue_free(choir__queue *queue); /* drains; NULL is fine */
/* Sets other cores, as many as before, for a worker that has not started. */
void choir__queue_place(choir__queue *queue, const int *cores);

/* Enqueues fn with a copy of args (at most CHOIR__TASK_MAX bytes). */
enum { CHOIR__TASK_MAX = 1024 };
void choir__queue_issue(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes);

/* A place in a queue: everything issued to it so far. A zeroed event was never recorded. */
typedef struct choir__event {
    choir__queue *queue;
    uint64_t seq;
} choir__event;

choir__event choir__queue_record(choir__queue *queue);

/* Makes tasks that are issued to queue from now on wait for the event. Error: state, if the
 * event was never recorded. */
choir_status choir__queue_wait_event(choir__queue *queue, choir__event event);

/* Keeps a queue's counters valid, even after choir__queue_free, until choir__queue_let_go. The
 * owner of an event that may outlive its queue holds the queue; a freed queue reports all its
 * events as done. */
void choir__queue_hold(choir__queue *queue);
void choir__queue_let_go(choir__queue *queue);

/* Host side: waits for the event; returns the sticky error of its queue. */
choir_status choir__event_wait(choir__event event);
bool choir__event_done(choir__event event);

/* Sets how long the worker leaves tasks to a waiter. */
void choir__queue_set_patience(choir__queue *queue, int patience_us);
/* Says that the host issues work to other queues, too, before it waits for this one. */
void choir__queue_beside_others(choir__queue *queue);

/* Waits for all issued tasks; returns the queue's sticky error. */
choir_status choir__queue_wait(choir__queue *queue);

/* From inside a task: marks the queue that runs it as failed. Formats like choir__error. */
choir_status choir__queue_fail(choir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* From inside a task, instead of choir__now(). choir__queue_now reads the clock; call it last
 * in a task, so that the runner can reuse the value. choir__queue_looked returns the runner's
 * last reading without a clock call; it was taken before this task or, if several run in one
 * batch, before an earlier one. */
double choir__queue_now(void);
double choir__queue_looked(void);

/* From inside a task of a timed queue: the time at which it was issued, to a few milliseconds;
 * 0 elsewhere. */
double choir__queue_issued(void);

/* Marks the queue as failed with a given sentence. May be called from any thread. */
void choir__queue_break(choir__queue *queue, choir_status status, const char *sentence);

/* Return the queue's first failure and set this thread's message to its sentence.
 * choir__queue_look also asks the stream, if any, for errors; otherwise only waits ask it.
 * choir__queue_clear waits for all tasks and forgets the failure. */
choir_status choir__queue_status(choir__queue *queue);
choir_status choir__queue_look(choir__queue *queue);
void choir__queue_clear(choir__queue *queue);

typedef struct choir__queue_stats {
    double busy_s;
    uint64_t issued, finished;
    uint64_t moved; /* bytes: choir__queue_moved */
    /* wakes: wake-ups of the worker; idle_wakes: wake-ups that found no task left */
    unsigned wakes, idle_wakes;
} choir__queue_stats;

choir__queue_stats choir__queue_get_stats(choir__queue *queue);

/* Counts `bytes` that tasks issued to `to` copy out of the memory of queue `from`. Both queues
 * count them, also in each replay. */
void choir__queue_moved(choir__queue *to, choir__queue *from, uint64_t bytes);

/* Called on the runner after each task, except waits for other queues, with the times
 * (choir__now()) at which it started and ended. */
typedef void choir__observer(
    void *arg, choir__queue_task *fn, const void *args, double start, double end);

/* Sets the observer for tasks issued from now on; NULL removes it. The queue is drained
 * first. */
void choir__queue_observe(choir__queue *queue, choir__observer *fn, void *arg);

bool choir__queue_captures(choir__queue *queue, choir__queue_task *fn, const void *args);

/* Returns the queue's stream, or NULL. */
struct choir__gpu_stream *choir__queue_stream(choir__queue *queue);

/* choir__queue_take makes this thread the queue's only runner once its tasks have been run;
 * choir__queue_give_back ends that. */
void choir__queue_take(choir__queue *queue);
void choir__queue_give_back(choir__queue *queue);

/* Runs fn on this thread, which must be the runner (choir__queue_take), outside the queue's
 * order. */
void choir__queue_run_now(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes);

/* Returns true if the queue has an observer. */
bool choir__queue_observed(choir__queue *queue);

/* Joins the worker of a host's queue without tasks, and the threads that serve the worker. The
 * next task starts another worker. */
void choir__queue_rest(choir__queue *queue);

/* Drains every queue and joins all workers before a fork. Workers start again on demand. */
void choir__queues_quiesce(void);

/* Recordings. While a recording is open on a thread, the tasks that the thread issues, the
 * events that it records and waits for, and its host calls are stored as well as carried out,
 * so that choir__recording_replay can issue the list again. */
typedef struct choir__recording choir__recording;

choir__recording *choir__recording_open(void);
void choir__recording_close(choir__recording *recording);
void choir__recording_free(choir__recording *recording);
choir_status choir__recording_replay(choir__recording *recording);
bool choir__recording_active(void);

/* Runs fn(arg) now and, if a recording is open, at this place of every replay. Tasks that fn
 * issues are not recorded: the host decides on them in each step. */
choir_status choir__host_call(choir_status (*fn)(void *arg), void *arg);

#endif
