/* Sums of several arrays on a GPU, in the fixed tree, and the marks that count calls
 * (add.cu). */
#ifndef CHOIR_NCCL_ADD_H
#define CHOIR_NCCL_ADD_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda_runtime_api.h>
#include <choir/dtype.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR__NCCL_SOURCES = 128, CHOIR__NCCL_DEPTH = 16 };

/* The numbers of calls that the stream has begun and ended, written by the GPU. */
typedef struct choir__marks {
    volatile uint32_t begun, ended;
} choir__marks;

/* out = scale * tree(from[0], from[1], ...), n elements. After source i, merges[i] pairs of
 * partial results are joined. f32 and f64 are added directly; 16-bit floats are added in f32
 * and rounded once. The bits equal choir__reduce's. out may be a source. */
typedef struct choir__nccl_addition {
    const void *from[CHOIR__NCCL_SOURCES];
    uint8_t merges[CHOIR__NCCL_SOURCES];
    void *out;
    int64_t n;
    double scale;
    int32_t sources;
    int32_t dtype;
} choir__nccl_addition;

cudaError_t choir__nccl_launch_add(const choir__nccl_addition *a, cudaStream_t stream);
/* Increments a mark, `begun` or `ended`. */
cudaError_t choir__nccl_launch_mark(volatile uint32_t *count, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
