/* How a kernel runs: what device code (softgpu.h) and the streams (stream.c) ask of block.c. */
#ifndef SOFTGPU_BLOCK_H
#define SOFTGPU_BLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SOFTGPU_WARP = 32, SOFTGPU_MAX_THREADS = 1024 };

/* Where the running thread is; kernels read it as threadIdx and so on. */
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

/* All blocks, one after another. The caller sees to it that one kernel runs at a time. */
void softgpu_run_kernel(const softgpu_kernel *kernel, const void *args);

/* From inside a thread: waits for the block's. The place in the source tells barriers apart. */
void softgpu_barrier(const char *file, int line);

/* From inside a thread: waits for the warp's lanes in mask. The last of them calls act once,
 * with what each lane gave, NULL for lanes that are not there; then all go on. */
typedef void softgpu_act(void *const lanes[SOFTGPU_WARP]);
void softgpu_warp(unsigned mask, void *mine, softgpu_act *act, const char *what);

int softgpu_lane(void); /* the running thread's */

/* Puts a kernel on a stream with a copy of its one argument: cudaLaunchKernel (stream.c). */
cudaError_t softgpu_issue_kernel(
    const softgpu_kernel *kernel, cudaStream_t stream, const void *args, size_t bytes);

/* Says what a kernel did that a GPU forgives no better, and aborts. */
void softgpu_wrong(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#ifdef __cplusplus
}
#endif
#endif
