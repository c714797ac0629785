/* A CUDA device from the inside: the state that its kernels and its streams share.
 *
 * cuda:K is a GPU. With CHOIR_CUDA_DEVICES=n it is one of n *virtual* devices, distributed over
 * the available GPUs: each has its own stream, pool and cuBLASLt workspace, on a GPU that
 * others use too. A kernel of the table is a host function (`kit/kernel.cuh` has the pattern).
 * It runs on the thread that runs the device's queue, reads its arguments there, so that they
 * may contain pointers to host memory, and launches work on choir__cuda_here()->stream.
 *
 * Everything a kernel needs besides its arguments comes from the context: scratch memory, the
 * matrix library's handle, and the *fault*, in which device code reports errors such as a class
 * id out of range. The host reads the fault when it next waits for the stream. */
#ifndef CHOIR_CUDA_H
#define CHOIR_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#include <choir/device.h>
#include "device/kernels.h"
#include "device/libraries.h"

#ifdef __cplusplus /* C++ has no _Atomic, so device/queue.h cannot be included */
choir_status choir__queue_fail(choir_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#endif

/* The kinds of errors that device code reports, in pinned memory: the first report wins. */
typedef enum choir__cuda_wrong {
    CHOIR__FINE,
    CHOIR__BAD_ID,          /* an embedding's id: value, its position, limit: rows */
    CHOIR__BAD_TARGET,      /* cross_entropy's class: value, its row, limit: classes */
    CHOIR__BAD_NLL_TARGET,  /* nll_loss's class, likewise */
    CHOIR__BAD_PROBABILITY, /* bce_loss of a number outside [0, 1]: number, its element */
    CHOIR__BAD_INDEX,       /* a lookup's: value, its place, limit; number: choir__lookup */
    CHOIR__BAD_CTC,      /* a sequence of ctc_loss: value, sequence; number: choir__ctc_part */
    CHOIR__BAD_PIVOT,    /* cholesky's: number; its row: value; its matrix: at */
    CHOIR__STUCK_SCALER, /* consecutive steps with infinities: value; number: scale */
} choir__cuda_wrong;

typedef struct choir__cuda_fault {
    int32_t what; /* choir__cuda_wrong; set last */
    int32_t taken;
    int64_t value, limit, at;
    double number;
} choir__cuda_fault;

typedef struct choir__cuda {
    choir_device *device; /* NULL: a group's stream */
    int gpu;              /* CUDA's number of the GPU */
    int capability;       /* 90: Hopper */
    size_t memory;        /* bytes of the GPU's memory */
    int multiprocessors;
    int most_shared; /* bytes of shared memory that a block may request */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* cuBLASLt's and cuDNN's, used in stream order */
    size_t workspace_bytes;
    choir__cuda_fault *fault; /* host memory at an address that the GPU can use */
    struct choir__cuda_scratch_slots *scratch;
    cudaError_t launched;               /* first error of the running task's launches */
    bool capturing;                     /* launched work is stored, not run */
    bool refused;                       /* something could not be captured */
    struct choir__library_plans *plans; /* kernels/matmul.cu's; NULL: none yet */
    void *dnn; /* dnn/dnn_run.c's: a cuDNN handle and its plans; NULL: none yet */
    choir__library_use use[CHOIR__LIBRARIES];
} choir__cuda;

/* Returns the context that is current on this thread: set while a queue's tasks run. */
choir__cuda *choir__cuda_here(void);
void choir__cuda_set_here(choir__cuda *cuda);

/* Slots of scratch memory. A kernel's own blocks are in the first four; products and cuDNN,
 * which other kernels call, have slots of their own, so that no block is used twice at once. */
enum { CHOIR__SCRATCH_PRODUCT = 4, CHOIR__SCRATCH_DNN, CHOIR__SCRATCH_SLOTS };
/* Returns the slot's block of device memory, at least `bytes` bytes, aligned to 256. It is the
 * caller's until the task ends or choir__cuda_scratch_done: the stream is in order, so work
 * that is launched later runs later. Returns NULL, after failing the queue, if there is no
 * memory or the block is in use. */
void *choir__cuda_scratch(int slot, size_t bytes);
/* Returns a block before the task ends, for the next caller in the task. */
void choir__cuda_scratch_done(int slot);
/* Returns all blocks of a context: its task has ended. */
void choir__cuda_scratch_all_done(choir__cuda *cuda);

/* Free what products and cuDNN store for a context that closes; its stream has finished all
 * work. */
void choir__cuda_plans_free(choir__cuda *cuda);
#ifdef CHOIR_HAVE_CUDNN
void choir__cuda_dnn_free(choir__cuda *cuda);
#else
static inline void choir__cuda_dnn_free(choir__cuda *cuda)
{
    (void)cuda;
}
#endif

/* A thread that has not chosen a GPU is on GPU 0, and many CUDA calls would start to use that
 * GPU, which takes half a gigabyte of its memory. So choir__cuda_use notes GPUs when they come
 * into use, and threads that call CUDA outside a stream's tasks first call choir__cuda_settle,
 * which selects one of those. It returns false if no GPU is in use yet. */
void choir__cuda_use(int gpu);
bool choir__cuda_settle(void);
/* Returns true if choir__cuda_use has noted this GPU. */
bool choir__cuda_used(int gpu);

/* Returns the number of the GPU whose memory contains p, or -1 for host memory. */
int choir__cuda_gpu_of(const void *p);

/* Returns true if there is no error. Otherwise fails the running queue with a message about
 * `what` ("cuBLASLt's product") and returns false. */
bool choir__cuda_ok(cudaError_t error, const char *what);

/* The kernels, named as in the table. */
#define X(name) void choir__cuda_##name(const choir__k_##name *k);
CHOIR__KERNEL_LIST(X)
#undef X

/* Returns an error if the compiled code does not run on the current GPU. */
cudaError_t choir__cuda_code_runs(void);

/* Stores the memory in use of the GPU at facts->bus, and utilisation, temperature, power, clock
 * and driver as far as NVML, the driver's information, has them. The call does not start to use
 * the GPU. Returns false if there is no NVML. */
struct choir__device_facts; /* device/device.h, which C++ cannot include */
bool choir__nvml_describe(struct choir__device_facts *facts);

#ifdef __cplusplus
}
#endif
#endif
