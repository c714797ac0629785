/* A software-emulated GPU, from the inside: the interface between the files that imitate
 * libcudart.
 *
 * All state is under one lock. Work is *lazy*: an operation stays in its stream until a thread
 * waits for it, and then no more is done than necessary, so that a program that forgot to wait
 * reads old data. The waiting thread runs the operation and holds the lock (except during host
 * functions).
 *
 * Environment:
 *   SOFTGPU=now          runs operations as they are issued
 *   SOFTGPU_RUN=no       kernels, products and fills of device memory do nothing: for counting
 *   SOFTGPU_COUNT=n      number of GPUs (1); CUDA_VISIBLE_DEVICES selects among them
 *   SOFTGPU_MEMORY=bytes of each GPU (4 GiB); K, M, G are understood
 *   SOFTGPU_STRICT=1     device memory is accessible only while a GPU that may use it works
 *   SOFTGPU_POINTERS=1   a kernel whose arguments point to the host's memory is fatal
 *   SOFTGPU_ORDER=forward  runs threads and blocks in order (block.c)
 *   SOFTGPU_SEED=n       of the orders in which threads run (1)
 *   SOFTGPU_RACE=all     prints each race of instrumented kernels and goes on (race.c)
 *   SOFTGPU_WRITES=no    refuses cuStreamWriteValue32; =lost: accepts and never does it
 *   SOFTGPU_DRIVER=12020 the driver's version; 0: no driver
 *   SOFTGPU_CAPABILITY=61  compute capability 6.1 (90), with its shared memory
 *   SOFTGPU_FAIL=kernel:3,malloc:1+  the calls that fail: see softgpu_fail_next; with a +, all
 *                                    later ones, too
 *   SOFTGPU_FAIL_ONCE=FILE           of all processes the first to come to such a call, which
 *                                    makes the file, is the only one in which it fails */
#ifndef SOFTGPU_GPU_H
#define SOFTGPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <cuda_runtime_api.h>

#include "block.h"
#include "fail.h"

enum { SOFTGPU_MAX_GPUS = 16, SOFTGPU_LEAST_CAPABILITY = 80 };

/* --- gpu.c: the GPUs, and how calls begin and end --- */

/* Counts an operation that a GPU runs; returns false if it is only counted (SOFTGPU_RUN). */
bool softgpu_runs(void);

/* Every call is softgpu_enter, its work if that succeeded, softgpu_leave. softgpu_enter is for
 * calls that are legal during a capture. softgpu_enter_unsafe is for the others: it returns an
 * error and ends the capture if a capture of this thread, or one that concerns any thread, is
 * running. */
cudaError_t softgpu_enter(void);
cudaError_t softgpu_ask(void); /* like enter; does not begin to use the current GPU */
cudaError_t softgpu_enter_unsafe(void);
cudaError_t softgpu_leave(cudaError_t error);

int softgpu_count(void);
int softgpu_current(void);        /* the calling thread's GPU */
bool softgpu_now(void);           /* operations run as they are issued */
cudaError_t softgpu_broken(void); /* the sticky error, or cudaSuccess */
void softgpu_break(cudaError_t error);
size_t softgpu_memory_bytes(void);
bool softgpu_strict(void);
int softgpu_capability(void);
size_t softgpu_most_shared(void);                            /* of a block */
int softgpu_physical(int gpu);                               /* before CUDA_VISIBLE_DEVICES */
bool softgpu_failing(softgpu_call call, cudaError_t *error); /* counts it; true: it fails */
void softgpu_unlock(void);                                   /* around host functions */
void softgpu_lock(void);
pthread_mutex_t *softgpu_mutex(void);
double softgpu_clock(void); /* seconds */

/* --- memory.c --- */

typedef enum softgpu_kind { SOFTGPU_PAGEABLE, SOFTGPU_PINNED, SOFTGPU_DEVICE } softgpu_kind;

/* Returns the kind of memory at p; *gpu: its GPU, if it is device memory. */
softgpu_kind softgpu_kind_of(const void *p, int *gpu);
/* Returns whether the range is within one allocation, or is pageable memory of the host. */
bool softgpu_within(const void *p, size_t bytes);
/* Makes the memory of these GPUs (bits), and no other, accessible. */
void softgpu_open_memory(unsigned gpus);
/* Returns a second address of the memory at p, which is never closed: copies use it, as closing
 * costs time per page. */
void *softgpu_back(const void *p);
#define SOFTGPU_BY_THE_BACK                                                                    \
    (1u << 31) /* in an operation's `touches`: no memory need be opened */
/* Returns the GPUs (bits) whose memory a kernel on gpu may access: itself and its peers. */
unsigned softgpu_reachable(int gpu);
/* Maps memory of another process (ipc.c). */
void *softgpu_map_foreign(int gpu, int fd, size_t at, size_t bytes);
bool softgpu_unmap_foreign(void *p);
/* Returns the place in a file of the allocation that contains p; false: there is none. */
bool softgpu_allocation(const void *p, int *gpu, int *fd, size_t *at, size_t *bytes);

/* --- stream.c --- */

typedef void softgpu_task(const void *args);
typedef enum softgpu_op_kind {
    SOFTGPU_TASK,
    SOFTGPU_HOST,
    SOFTGPU_WAIT,
    SOFTGPU_STAMP
} softgpu_op_kind;

typedef struct softgpu_op softgpu_op;
struct softgpu_op {
    softgpu_op *next;
    softgpu_op_kind kind;
    softgpu_task *fn;   /* TASK, HOST */
    unsigned touches;   /* TASK: bits of the GPUs whose memory it may access */
    bool kernel;        /* TASK: it is a kernel, which may fail */
    cudaStream_t other; /* WAIT: until this stream's operation seq is done */
    uint64_t seq;
    cudaEvent_t event; /* STAMP */
    size_t bytes;
    unsigned char args[] __attribute__((aligned(16)));
};

typedef struct softgpu_capture softgpu_capture;

struct CUstream_st {
    uint32_t magic;
    int gpu;
    bool blocking; /* this stream and the legacy stream wait for each other */
    bool in_host;  /* a thread runs its host function */
    softgpu_op *head, *tail;
    uint64_t issued, done;
    softgpu_capture *capture; /* NULL: none */
    int *after;               /* nodes after which its next node of the capture comes */
    int after_count;
    cudaStream_t next; /* list of all streams ever made */
};

struct CUevent_st {
    uint32_t magic;
    int gpu;
    bool timed, recorded;
    cudaStream_t stream;
    uint64_t seq;
    double at;                /* time at which it was reached */
    int stamps;               /* STAMPs issued and not run yet */
    bool gone;                /* destroyed */
    softgpu_capture *capture; /* in which it was recorded, after the nodes in `after` */
    uint64_t capture_id;
    int *after;
    int after_count;
};

/* Returns the stream of a handle, or NULL if it is invalid. Handle 0 is the legacy stream of
 * the current GPU. */
cudaStream_t softgpu_stream(cudaStream_t handle);
cudaStream_t softgpu_legacy(int gpu); /* NULL: it was never used */
cudaStream_t softgpu_streams(void);   /* the first of all */

/* Adds an operation with a copy of args; to the graph if the stream is captured. */
cudaError_t softgpu_issue(cudaStream_t stream, softgpu_op_kind kind, softgpu_task *fn,
    const void *args, size_t bytes, unsigned touches, bool kernel);
void softgpu_append(cudaStream_t stream, softgpu_op *op); /* op is not copied */
void softgpu_append_wait(cudaStream_t stream, cudaStream_t other, uint64_t seq);
/* Orders the legacy stream after all blocking streams, and them after it. */
cudaError_t softgpu_keep_legacy_order(cudaStream_t stream);
void softgpu_stamp(cudaEvent_t event, uint64_t seq); /* event.c: the event is reached */
softgpu_op *softgpu_op_new(softgpu_op_kind kind, softgpu_task *fn, const void *args,
    size_t bytes, unsigned touches, bool kernel);
/* Runs a TASK or HOST now. */
void softgpu_run_op(softgpu_op *op);

cudaError_t softgpu_run_until(cudaStream_t stream, uint64_t seq);
cudaError_t softgpu_run_all(int gpu);
void softgpu_run_one(cudaStream_t stream); /* for queries, which do not wait */

/* --- capture.c --- */

/* Returns whether this thread may not make a call that could synchronise now, because of a
 * capture. */
bool softgpu_capture_forbids(void);
void softgpu_capture_spoil(softgpu_capture *capture);
void softgpu_capture_spoil_all(void);
/* Returns whether work given to the legacy stream of gpu would now join a capture. */
bool softgpu_capture_of_blocking(int gpu);
cudaError_t softgpu_capture_add(cudaStream_t stream, softgpu_op *op);
cudaError_t softgpu_capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t softgpu_capture_wait(cudaStream_t stream, cudaEvent_t event);
bool softgpu_capture_alive(const struct CUevent_st *event);
/* Returns whether a graph has an operation fn whose arguments match `of`. */
bool softgpu_captured(
    softgpu_task *fn, bool (*is)(const void *args, const void *of), const void *of);

#endif
