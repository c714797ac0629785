/* A stream: it executes the work that a queue's tasks issue when the work runs elsewhere, on a
 * GPU.
 *
 * A queue with a stream (choir__queue_opts.stream) has two kinds of progress. Its runner runs
 * tasks that only issue work; the stream reaches their places some time later. A *mark*
 * connects the two: all work issued to the stream before a mark at place `seq` belongs to tasks
 * up to seq. Waiting for a place means waiting for a mark at or after it.
 *
 * Two queues with streams of one kind need no host between them: one stream follows the
 * other. */
#ifndef CHOIR_DEVICE_STREAM_H
#define CHOIR_DEVICE_STREAM_H

#include "device/queue.h"

typedef struct choir__gpu_stream choir__gpu_stream;
typedef struct choir__graph choir__graph; /* captured work that is launched as one unit */

typedef struct choir__gpu_stream_ops {
    /* Ends the stream after its last work. It counts as having reached every place; holders of
     * its queue may ask it until `free`. */
    void (*close)(choir__gpu_stream *stream);
    void (*free)(choir__gpu_stream *stream);
    /* Makes the stream the calling thread's, so that kernels launch on it. Used as the queue's
     * `enter`. */
    void (*enter)(choir__gpu_stream *stream);
    void *(*handle)(
        choir__gpu_stream *stream); /* a cudaStream_t, for libraries that take one */

    /* Marks the place seq unless there is a mark at or after it. May be called from any
     * thread. */
    void (*mark)(choir__gpu_stream *stream, uint64_t seq);
    /* Returns the last marked place that is known to be reached, without waiting. */
    uint64_t (*reached)(choir__gpu_stream *stream);
    /* Returns an error that is known so far, without waiting. */
    choir_status (*look)(choir__gpu_stream *stream, uint64_t launched);
    /* Waits until seq is reached, and returns any error up to there, with its sentence.
     * launched: tasks have been run up to this place; it is marked if there is no mark yet. */
    choir_status (*wait)(choir__gpu_stream *stream, uint64_t seq, uint64_t launched);
    /* Makes later work of the stream wait until `other`, a stream with equal ops, has reached
     * seq. */
    void (*follow)(
        choir__gpu_stream *stream, choir__gpu_stream *other, uint64_t seq, uint64_t launched);
    /* Called after a task: fails the queue if a launch was refused. */
    void (*ran)(
        choir__gpu_stream *stream, choir__queue_task *fn, const void *args, size_t bytes);
    double (*busy_s)(choir__gpu_stream *stream);

    /* Capturing. After begin, work that is issued to `first`, and to streams that join it, is
     * stored and not run. An error ends the capture, and end returns NULL. All calls must be
     * made on one thread. */
    /* returns whether a task touches no host memory */
    bool (*capturable)(choir__queue_task *fn, const void *args);
    bool (*begin)(choir__gpu_stream *first);
    /* Order inside a capture: later work of a stream follows a place of another stream. If that
     * is not possible, the capture is refused. Return NULL or false if the stream is not
     * captured. */
    void *(*place)(choir__gpu_stream *stream);
    bool (*behind)(choir__gpu_stream *stream, void *place);
    void (*drop)(void *place);
    choir__graph *(*end)(choir__gpu_stream *first);
    /* Declares that the stream's current work cannot be captured. Returns false if the stream
     * is not captured. */
    bool (*refuse)(choir__gpu_stream *stream);
    /* Called for each captured stream after the end. Returns false if something was refused, so
     * that the graph is incomplete. */
    bool (*captured)(choir__gpu_stream *stream);
    void (*launch)(choir__gpu_stream *stream, choir__graph *graph);
    void (*forget)(choir__graph *graph); /* called when the graph is not launched again */
} choir__gpu_stream_ops;

struct choir__gpu_stream {
    const choir__gpu_stream_ops *ops;
};

#endif
