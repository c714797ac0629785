/* How a kernel runs: the interface of block.c for device code (softgpu.h) and streams
 * (stream.c). */
#ifndef SOFTGPU_BLOCK_H
#define SOFTGPU_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SOFTGPU_WARP = 32, SOFTGPU_MAX_THREADS = 1024, SOFTGPU_MOST_ARGS = 4096 };

/* Place of the running thread; kernels read it as threadIdx and so on. */
typedef struct softgpu_place {
    uint3 thread, block;
    dim3 threads, blocks; /* blockDim, gridDim */
} softgpu_place;

extern softgpu_place softgpu_here;
extern unsigned char *softgpu_shared_memory; /* the block's dynamic shared memory */

typedef struct softgpu_kernel {
    void (*run)(void (*kernel)(void), const void *args); /* one thread of it */
    void (*kernel)(void);
    dim3 blocks, threads;
    size_t shared;
} softgpu_kernel;

/* Runs all blocks, one after another. The caller ensures that one kernel runs at a time. */
void softgpu_run_kernel(const softgpu_kernel *kernel, const void *args);

/* Called by a kernel's thread: waits for all threads of the block. The place in the source
 * tells barriers apart. */
void softgpu_barrier(const char *file, int line);

/* Called by a kernel's thread: waits for the warp's lanes in mask. The last of them calls act
 * once, with the value of each lane (NULL for lanes that take no part); then all continue. */
typedef void softgpu_act(void *const lanes[SOFTGPU_WARP]);
void softgpu_warp(unsigned mask, void *mine, softgpu_act *act, const char *what);

/* Called by a kernel's thread: waits like softgpu_warp, and orders the memory accesses of the
 * lanes, as __syncwarp does. */
void softgpu_warp_barrier(unsigned mask);

int softgpu_lane(void);   /* the running thread's */
int softgpu_number(void); /* the running thread's number in its block */

/* Ends the program if p is not a multiple of bytes: a GPU traps on such a wide access. */
void softgpu_aligned(const void *p, size_t bytes);

/* Issues a kernel to a stream, with a copy of its one argument: cudaLaunchKernel (launch.c). */
cudaError_t softgpu_issue_kernel(
    const softgpu_kernel *kernel, cudaStream_t stream, const void *args, size_t bytes);

/* Prints what a kernel did that would fail on a GPU as well, and aborts. */
void softgpu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif
#endif
