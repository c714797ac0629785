/* In-order queues of work, and events between them.
 *
 * A task is a function and a small block of arguments, copied in when it is issued. One runner
 * at a time executes a queue's tasks, in order. *Whoever waits for a queue runs it*:
 * choir__queue_wait executes the outstanding tasks on the calling thread if nobody else is at
 * it. A worker thread serves the queue when nobody waits; it lets a moment pass before it steps
 * in, so the common "issue a step, then read the loss" never crosses between threads. Queues
 * whose work needs the worker's own thread pool (a device of several cores) are run by the
 * worker alone.
 *
 * Tasks of a queue with a stream (stream.h) only issue work to it, so whoever issues a task
 * runs it at once, unless it would have to wait for a queue of the host's; then the worker
 * does. Such a task is finished when its stream has come to it.
 *
 * An event is a place in a queue. choir__queue_wait_event makes one queue wait for another's.
 *
 * A task that fails calls choir__queue_fail; the first failure sticks to the queue, the tasks
 * behind it are dropped, and every later wait returns it.
 *
 * The same queues serve devices and groups. Issuing is thread-safe. */
#ifndef CHOIR_QUEUE_H
#define CHOIR_QUEUE_H

#include "base/base.h"
#include "device/gauges.h"

typedef struct choir__queue choir__queue;

/* Runs on the queue's current runner. args is the queue's copy, aligned to 16 bytes. */
typedef void choir__task(const void *args);

/* Whether a task of a queue with a stream only gives work to that, and looks at nothing that
 * changes from one time to the next: such tasks may become a graph. */
typedef bool choir__capturable(choir__task *fn, const void *args);

typedef struct choir__queue_opts {
    const char *name; /* for traces and messages */
    const int *cores; /* the worker's cores */
    int core_count;   /* 0: anywhere */
    bool worker_only; /* tasks need the worker's thread: nobody else may run them */
    int patience_us;  /* how long the worker leaves tasks to a waiter; 0: a millisecond */
    void (*enter)(void *arg); /* called on a thread that becomes the runner; may be NULL */
    void *arg;
    choir__queue_gauges *gauges;   /* kept up to date for others to see; NULL: nobody looks */
    bool timed;                    /* note when tasks are issued: choir__queue_issued */
    bool null;                     /* what is issued to it is dropped, and done at once */
    bool blames;                   /* what a task fails with begins with the queue's name */
    struct choir__stream *stream;  /* what tasks give their work to (stream.h): the queue's from
                                      now on, in place of enter. NULL: they do it themselves */
    choir__capturable *capturable; /* of its tasks; NULL: as the stream says */
} choir__queue_opts;

choir__queue *choir__queue_new(choir__queue_opts opts);
void choir__queue_free(choir__queue *queue); /* drains; NULL is fine */
/* Other cores, as many as before, for a worker that does not run. */
void choir__queue_place(choir__queue *queue, const int *cores);

/* Enqueues fn with a copy of args (at most CHOIR__TASK_MAX bytes). */
enum { CHOIR__TASK_MAX = 1024 };
void choir__queue_issue(choir__queue *queue, choir__task *fn, const void *args, size_t bytes);

/* A place in a queue: everything issued to it so far. Zero-initialised: nobody recorded it. */
typedef struct choir__event {
    choir__queue *queue;
    uint64_t seq;
} choir__event;

choir__event choir__queue_record(choir__queue *queue);

/* Makes tasks issued to queue from now on wait for it. Error: state, if never recorded. */
choir_status choir__queue_wait_event(choir__queue *queue, choir__event event);

/* Who keeps an event for longer than its queue may live holds the queue, and lets it go: what
 * is left of a queue that was freed says that the event is done. */
void choir__queue_hold(choir__queue *queue);
void choir__queue_let_go(choir__queue *queue);

/* Host side: waits for the event; returns the sticky error of its queue. */
choir_status choir__event_wait(choir__event event);
bool choir__event_done(choir__event event);

/* How long the worker leaves tasks to a waiter, from now on: before the first task. */
void choir__queue_set_patience(choir__queue *queue, int patience_us);

/* Waits for all that has been issued. */
choir_status choir__queue_wait(choir__queue *queue);

/* From inside a task: marks the queue that runs it failed. Formats like choir__error. */
choir_status choir__queue_fail(choir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* From inside a task, instead of choir__now(). The time, asked for by the last thing a task
 * does: the runner then need not ask again. And, for free, when the runner last asked, which
 * was before this task or, where several run in one go, an earlier one of them. */
double choir__queue_now(void);
double choir__queue_looked(void);

/* From inside a task of a timed queue: when it was issued, to a few milliseconds; 0 elsewhere.
 */
double choir__queue_issued(void);

/* The same from any thread, in words of somebody else's. */
void choir__queue_break(choir__queue *queue, choir_status status, const char *sentence);

/* The first failure, and its sentence; choir__queue_clear forgets it. look: after asking the
 * stream, if there is one, which else is asked when somebody waits. */
choir_status choir__queue_status(choir__queue *queue);
choir_status choir__queue_look(choir__queue *queue);
void choir__queue_clear(choir__queue *queue);

typedef struct choir__queue_stats {
    double busy_s;
    uint64_t issued, finished;
    uint64_t moved; /* bytes: choir__queue_moved */
} choir__queue_stats;

choir__queue_stats choir__queue_get_stats(choir__queue *queue);

/* Notes that tasks issued to `to` copy so many bytes out of another queue's memory. Both count
 * them, in each replay, too. */
void choir__queue_moved(choir__queue *to, choir__queue *from, uint64_t bytes);

/* Called on the runner after each task but waits for other queues, with when it ran
 * (choir__now()). */
typedef void choir__observer(
    void *arg, choir__task *fn, const void *args, double start, double end);

/* From now on; NULL: nobody watches. The queue is drained first. */
void choir__queue_observe(choir__queue *queue, choir__observer *fn, void *arg);

bool choir__queue_captures(choir__queue *queue, choir__task *fn, const void *args);

/* Its stream; NULL: none. */
struct choir__stream *choir__queue_stream(choir__queue *queue);

/* Makes this thread the queue's only runner, once its tasks have been run; and ends that. */
void choir__queue_take(choir__queue *queue);
void choir__queue_give_back(choir__queue *queue);

/* Runs fn as the runner that this thread is, outside of the queue's order. */
void choir__queue_run_now(choir__queue *queue, choir__task *fn, const void *args, size_t bytes);

/* Whether somebody observes it. */
bool choir__queue_observed(choir__queue *queue);

/* Drains every queue and joins all workers, before a fork; they start anew on demand. */
void choir__queues_quiesce(void);

/* Recording: while a recording is open on this thread, tasks issued, events recorded and waited
 * for, and host calls noted by this thread are written down as well as carried out, so that
 * choir__recording_replay can issue the same list again. */
typedef struct choir__recording choir__recording;

choir__recording *choir__recording_open(void);
void choir__recording_close(choir__recording *recording);
void choir__recording_free(choir__recording *recording);
choir_status choir__recording_replay(choir__recording *recording);
bool choir__recording_active(void);

/* Runs fn(arg) now and, when a recording is open, again at this place of every replay. What fn
 * issues is not recorded: it is the part of a step that the host decides anew each time. */
choir_status choir__host_call(choir_status (*fn)(void *arg), void *arg);

#endif
