/* A stream from the inside, for stream.c, errors.c (errors) and capture.c (graphs). */
#ifndef CHOIR_CUDA_STREAM_RUN_H
#define CHOIR_CUDA_STREAM_RUN_H

#include <pthread.h>

#include "device/cuda/stream.h"

enum { MARKS = 64, LAST = 64, WORKSPACE = 32 << 20 };

typedef struct mark {
    cudaEvent_t event;
    uint64_t seq;
} mark;

typedef struct ran_task {
    choir__queue_task *fn;
    unsigned char args[CHOIR__TASK_MAX];
} ran_task;

/* The memory that the GPU writes to: pinned host memory at an address that both use. */
typedef struct seen {
    choir__cuda_fault fault;
    volatile uint32_t number; /* number of the last finished task */
} seen;

typedef struct cuda_stream {
    choir__gpu_stream base;
    choir__cuda cuda;
    pthread_mutex_t lock;
    mark marks[MARKS];
    int first, count;
    _Atomic uint64_t reached;
    bool broken; /* CUDA reports an error that persists */
    bool closed;
    seen *seen;     /* NULL: closed */
    ran_task *last; /* (LAST) */
    uint32_t number;
    bool numbered;
    /* busy time: from the start of work until a wait finds the stream idle */
    cudaEvent_t began;
    bool working;
    uint64_t turns; /* number of such starts */
    double busy_s;
} cuda_stream;

/* Returns the stream whose context is current on this thread. */
cuda_stream *choir__cuda_stream_here(void);

/* --- errors.c --- */

/* Returns the error of a wait, or the fault that device code raised, with its message. Under
 * lock. */
choir_status choir__cuda_findings(cuda_stream *s, cudaError_t error);
void choir__cuda_ran(
    choir__gpu_stream *stream, choir__queue_task *fn, const void *args, size_t bytes);
/* Returns true if the GPU can write tasks' numbers: tries it, on a stream without work. */
bool choir__cuda_numbers(cudaStream_t stream, volatile uint32_t *number);
bool choir__cuda_synchronous(void); /* CHOIR_CUDA_SYNC */

/* --- capture.c: see choir__gpu_stream_ops --- */

bool choir__cuda_capturable(choir__queue_task *fn, const void *args);
bool choir__cuda_begin(choir__gpu_stream *first);
void *choir__cuda_place(choir__gpu_stream *stream);
bool choir__cuda_behind(choir__gpu_stream *stream, void *place);
void choir__cuda_drop(void *place);
choir__graph *choir__cuda_end(choir__gpu_stream *first);
bool choir__cuda_refuse(choir__gpu_stream *stream);
bool choir__cuda_captured(choir__gpu_stream *stream);
void choir__cuda_launch(choir__gpu_stream *stream, choir__graph *graph);
void choir__cuda_forget(choir__graph *graph);

#endif
