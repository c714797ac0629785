/* A CUDA device from the inside: what its kernels and its streams share.
 *
 * cuda:K is a GPU, or with CHOIR_CUDA_DEVICES=n one of n *virtual* devices dealt out over the
 * GPUs there are: a stream, a pool and a cuBLASLt workspace of its own, on a GPU that others
 * use too. A kernel of the table is a host function (`kernel.cuh` has the pattern): it runs on
 * whichever thread runs the device's queue, looks at its arguments there, so that pointers to
 * host memory among them are fine, and launches work on choir__cuda_here()->stream.
 *
 * Everything a kernel needs beyond its arguments comes from the context: scratch memory, the
 * matrix library's handle, and the *fault* that device code raises for what it cannot say
 * otherwise, a class id out of range. The host reads it when it next waits for the stream. */
#ifndef CHOIR_CUDA_H
#define CHOIR_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <choir/device.h>
#include "device/kernels.h"

#ifdef __cplusplus /* which knows no _Atomic, so no queue.h */
choir_status choir__queue_fail(choir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#endif

/* What device code found wrong, in pinned memory: the first to raise it wins. */
typedef enum choir__cuda_wrong {
    CHOIR__FINE,
    CHOIR__BAD_ID,          /* an embedding's id: value, at which position, limit: rows */
    CHOIR__BAD_TARGET,      /* cross_entropy's class: value, at which row, limit: classes */
    CHOIR__BAD_NLL_TARGET,  /* nll_loss's, alike */
    CHOIR__BAD_PROBABILITY, /* bce_loss of what is not in [0, 1]: number, at which element */
    CHOIR__STUCK_SCALER,    /* so many steps in a row with infinities: value; number: scale */
} choir__cuda_wrong;

typedef struct choir__cuda_fault {
    int32_t what; /* choir__cuda_wrong; set last */
    int32_t taken;
    int64_t value, limit, at;
    double number;
} choir__cuda_fault;

typedef struct choir__cuda {
    choir_device *device; /* NULL: a group's stream */
    int gpu;              /* CUDA's number of it */
    int capability;       /* 90: Hopper */
    int multiprocessors;
    int most_shared; /* bytes of shared memory that a block may ask for */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* cuBLASLt's and cuDNN's, used in stream order */
    size_t workspace_bytes;
    choir__cuda_fault *fault; /* host memory that the GPU sees at the same address */
    struct choir__cuda_scratch *scratch;
    bool capturing;             /* what is launched is kept, not run */
    bool refused;               /* something could not be captured */
    struct choir__plans *plans; /* matmul.cu's; NULL: none yet */
    void *dnn;                  /* dnn.c's: a cuDNN handle and its plans; NULL: none yet */
} choir__cuda;

/* The context current on this thread: set while a queue's tasks run. */
choir__cuda *choir__cuda_here(void);

/* Device memory of at least so many bytes, aligned to 256, good until the same thread's next
 * call with the same slot: what is launched later comes later. NULL, and the queue has failed,
 * where there is none. Slots let one kernel have several. */
enum { CHOIR__SCRATCH_SLOTS = 4 };
void *choir__cuda_scratch(int slot, size_t bytes);

/* What products keep of a context that closes; its stream has done all. */
void choir__cuda_plans_free(choir__cuda *cuda);
#ifdef CHOIR_HAVE_CUDNN
void choir__cuda_dnn_free(choir__cuda *cuda);
#else
static inline void choir__cuda_dnn_free(choir__cuda *cuda)
{
    (void)cuda;
}
#endif

/* A thread that never chose a GPU is on GPU 0, and many a call of its would begin to use that:
 * half a gigabyte of its memory. So GPUs are noted when they come into use, and who calls CUDA
 * outside of a stream's tasks settles on one of those first. False: none is in use yet. */
void choir__cuda_use(int gpu);
bool choir__cuda_settle(void);

/* Whether p lies in memory of some GPU, and which: -1 for the host's. */
int choir__cuda_gpu_of(const void *p);

/* Fails the running queue with a sentence about `what` ("cuBLASLt's product") unless the error
 * is none. The next kernels find the queue failed. */
bool choir__cuda_ok(cudaError_t error, const char *what);

/* The kernels, one name for each of the table's. */
#define X(name) void choir__cuda_##name(const choir__k_##name *k);
CHOIR__KERNEL_LIST(X)
#undef X

#ifdef __cplusplus
}
#endif
#endif
