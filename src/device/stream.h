/* A stream: what a queue's tasks give work to when the work itself is done elsewhere, by a GPU.
 *
 * A queue with a stream (choir__queue_opts.stream) has two kinds of progress. Its runner runs
 * tasks, each of which only issues work; the stream then reaches places some time later. A
 * *mark* ties the two together: all that was given to the stream before a mark at place `seq`
 * belongs to tasks up to seq. Waiting for a place is waiting for a mark at or behind it.
 *
 * Between two queues with streams of one kind no host is needed: one follows the other. */
#ifndef CHOIR_STREAM_H
#define CHOIR_STREAM_H

#include "device/queue.h"

typedef struct choir__stream choir__stream;
typedef struct choir__graph choir__graph; /* work that was captured, to be launched at once */

typedef struct choir__stream_ops {
    /* Done with all it was given, and given nothing more: it has reached every place, as
     * whoever still holds its queue may ask until `free`. */
    void (*close)(choir__stream *stream);
    void (*free)(choir__stream *stream);
    /* Makes it the calling thread's: kernels launch on it. Called as a queue's `enter`. */
    void (*enter)(choir__stream *stream);
    void *(*handle)(choir__stream *stream); /* a cudaStream_t, for libraries that take one */

    /* Marks the place seq, unless there is a mark at or behind it. Any thread. */
    void (*mark)(choir__stream *stream, uint64_t seq);
    /* The last marked place that is known to be reached; looks, and does not wait. */
    uint64_t (*reached)(choir__stream *stream);
    /* What has gone wrong until now, as far as is known without waiting. */
    choir_status (*look)(choir__stream *stream, uint64_t launched);
    /* Waits until seq is reached. launched: tasks have been run up to here, for a mark if there
     * is none. What went wrong on the way is returned, with its sentence. */
    choir_status (*wait)(choir__stream *stream, uint64_t seq, uint64_t launched);
    /* What is given to it from now on waits for `other`, of the same ops, to reach seq. */
    void (*follow)(
        choir__stream *stream, choir__stream *other, uint64_t seq, uint64_t launched);
    /* After a task: fails the queue if a launch was refused. */
    void (*ran)(choir__stream *stream, choir__task *fn, const void *args, size_t bytes);
    double (*busy_s)(choir__stream *stream);

    /* Capturing: from begin on what is given to `first`, and to streams that join it, is kept
     * and not run. An error ends it: then end returns NULL. Call all of them on one thread. */
    bool (*capturable)(choir__task *fn, const void *args); /* touches no host memory */
    bool (*begin)(choir__stream *first);
    /* Of what is captured: what comes next on a stream is behind a place of another. Where that
     * can't be had the capture is refused; false: and the stream is not captured. */
    void *(*place)(choir__stream *stream);
    bool (*behind)(choir__stream *stream, void *place);
    void (*drop)(void *place);
    choir__graph *(*end)(choir__stream *first);
    /* What the stream is being given cannot be captured; false: it is not captured at all. */
    bool (*refuse)(choir__stream *stream);
    /* For each of them, after the end. False: something was refused, the graph is not whole. */
    bool (*captured)(choir__stream *stream);
    void (*launch)(choir__stream *stream, choir__graph *graph);
    void (*forget)(choir__graph *graph); /* nobody runs it any more */
} choir__stream_ops;

struct choir__stream {
    const choir__stream_ops *ops;
};

#endif
