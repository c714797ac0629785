/* A GPU made of software, from the inside: what the files that imitate libcudart share.
 *
 * All state is under one lock. Work is *lazy*: an operation waits in its stream until somebody
 * waits for it, and then no more is done than must be, so that a program that forgot to wait
 * reads old data. The thread that waits runs it, holding the lock (but for host functions).
 *
 * Environment:
 *   SOFTGPU=now          runs operations as they are issued
 *   SOFTGPU_COUNT=n      GPUs (1); CUDA_VISIBLE_DEVICES picks among them
 *   SOFTGPU_MEMORY=bytes of each (4 GiB); K, M, G are understood
 *   SOFTGPU_STRICT=1     device memory can be touched only while a GPU that may is at work
 *   SOFTGPU_POINTERS=1   a kernel's arguments with a pointer to the host's memory end it
 *   SOFTGPU_ORDER=forward  threads and blocks in line (block.c)
 *   SOFTGPU_DRIVER=12020 the driver's version; 0: there is none
 *   SOFTGPU_CAPABILITY=61  compute capability 6.1 (90), with its shared memory
 *   SOFTGPU_FAIL=kernel:3,malloc:1   what fails, and at which of its calls: softgpu_fail_next
 */
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

/* --- gpu.c: who is there, and how calls begin and end --- */

/* Every call is softgpu_enter, its work if that went well, softgpu_leave. Legal in a capture:
 * as enter; `unsafe`: an error, and the capture's end, where this thread or any is capturing.
 */
cudaError_t softgpu_enter(void);
cudaError_t softgpu_ask(void); /* the same of a call that begins no use of the current GPU */
cudaError_t softgpu_enter_unsafe(void);
cudaError_t softgpu_leave(cudaError_t error);

int softgpu_count(void);
int softgpu_current(void);        /* the calling thread's GPU */
bool softgpu_now(void);           /* nothing is put off */
cudaError_t softgpu_broken(void); /* the error that sticks, if there is one */
void softgpu_break(cudaError_t error);
size_t softgpu_memory_bytes(void);
bool softgpu_strict(void);
int softgpu_capability(void);
size_t softgpu_most_shared(void);                            /* that a block may ask for */
int softgpu_physical(int gpu);                               /* CUDA_VISIBLE_DEVICES undone */
bool softgpu_failing(softgpu_call call, cudaError_t *error); /* one more such call */
void softgpu_unlock(void);                                   /* around host functions */
void softgpu_lock(void);
pthread_mutex_t *softgpu_mutex(void);
double softgpu_clock(void); /* seconds */

/* --- memory.c --- */

typedef enum softgpu_kind { SOFTGPU_PAGEABLE, SOFTGPU_PINNED, SOFTGPU_DEVICE } softgpu_kind;

/* Whose memory p is; *gpu of device memory. */
softgpu_kind softgpu_kind_of(const void *p, int *gpu);
/* bytes from p are all of one allocation, or of the host's pageable memory. */
bool softgpu_within(const void *p, size_t bytes);
/* Device memory that may be touched from now on: bits of GPUs. */
void softgpu_open_memory(unsigned gpus);
/* The same memory where it is never closed, for copies: closing costs by the page. */
void *softgpu_back(const void *p);
#define SOFTGPU_BY_THE_BACK                                                                    \
    (1u << 31) /* among what an operation touches: none need be opened */
/* GPUs whose memory work on gpu may touch: itself, and peers. */
unsigned softgpu_reachable(int gpu);
/* Memory of another process; ipc.c. */
void *softgpu_map_foreign(int gpu, int fd, size_t at, size_t bytes);
bool softgpu_unmap_foreign(void *p);
/* The allocation p is in, as its place in a file; false: it is none. */
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
    unsigned touches;   /* TASK: bits of GPUs whose memory it may touch */
    bool kernel;        /* and whether it is one, which may fail */
    cudaStream_t other; /* WAIT: for its operation seq */
    uint64_t seq;
    cudaEvent_t event; /* STAMP */
    size_t bytes;
    unsigned char args[] __attribute__((aligned(16)));
};

typedef struct softgpu_capture softgpu_capture;

struct CUstream_st {
    uint32_t magic;
    int gpu;
    bool blocking; /* for the legacy stream, and it for this one */
    bool in_host;  /* a thread is in its host function */
    softgpu_op *head, *tail;
    uint64_t issued, done;
    softgpu_capture *capture; /* NULL: none */
    int *after;               /* nodes of the capture that its next one comes behind */
    int after_count;
    cudaStream_t next; /* all there ever were */
};

struct CUevent_st {
    uint32_t magic;
    int gpu;
    bool timed, recorded;
    cudaStream_t stream;
    uint64_t seq;
    double at;                /* when it was reached */
    int stamps;               /* STAMPs on their way */
    bool gone;                /* destroyed */
    softgpu_capture *capture; /* it was recorded in it, behind these of its nodes */
    uint64_t capture_id;
    int *after;
    int after_count;
};

/* Where a handle leads; NULL: nowhere. The legacy stream, 0, is the current GPU's. */
cudaStream_t softgpu_stream(cudaStream_t handle);
cudaStream_t softgpu_legacy(int gpu); /* NULL: it was never used */
cudaStream_t softgpu_streams(void);   /* the first of all */

/* Adds an operation; args are copied. Into the graph, where the stream is captured. */
cudaError_t softgpu_issue(cudaStream_t stream, softgpu_op_kind kind, softgpu_task *fn,
    const void *args, size_t bytes, unsigned touches, bool kernel);
void softgpu_append(cudaStream_t stream, softgpu_op *op); /* the same, as it is */
void softgpu_append_wait(cudaStream_t stream, cudaStream_t other, uint64_t seq);
/* The legacy stream comes behind all streams that do not say no, and they behind it. */
cudaError_t softgpu_keep_legacy_order(cudaStream_t stream);
void softgpu_stamp(cudaEvent_t event, uint64_t seq); /* event.c: it is reached */
softgpu_op *softgpu_op_new(softgpu_op_kind kind, softgpu_task *fn, const void *args,
    size_t bytes, unsigned touches, bool kernel);
/* Runs one now: TASKs and HOSTs. */
void softgpu_run_op(softgpu_op *op);

cudaError_t softgpu_run_until(cudaStream_t stream, uint64_t seq);
cudaError_t softgpu_run_all(int gpu);
void softgpu_run_one(cudaStream_t stream); /* for who only asks */

/* --- capture.c --- */

/* Whether a call that might synchronise is forbidden to this thread now. */
bool softgpu_capture_forbids(void);
void softgpu_capture_spoil(softgpu_capture *capture);
void softgpu_capture_spoil_all(void);
/* Whether work given to the legacy stream of gpu now would join captures. */
bool softgpu_capture_of_blocking(int gpu);
cudaError_t softgpu_capture_add(cudaStream_t stream, softgpu_op *op);
cudaError_t softgpu_capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t softgpu_capture_wait(cudaStream_t stream, cudaEvent_t event);
bool softgpu_capture_alive(const struct CUevent_st *event);
/* Whether a graph has an operation fn whose arguments are `of`'s. */
bool softgpu_captured(
    softgpu_task *fn, bool (*is)(const void *args, const void *of), const void *of);

#endif
