/* The contents of cuBLASLt's opaque structs here. */
#ifndef SOFTGPU_BLASLT_H
#define SOFTGPU_BLASLT_H

#include <stdint.h>

typedef struct softgpu_layout {
    int32_t type, order, batch, set;
    uint64_t rows, cols;
    int64_t ld, stride;
} softgpu_layout;

typedef struct softgpu_description {
    int32_t compute, scale, a_turned, b_turned, epilogue, pointer_mode;
    int32_t bias_type; /* -1: D's */
    void *vector;      /* a bias, or the sums to write */
    int64_t bias_stride;
    void *aux; /* GELU's input, of D's type */
    int64_t aux_ld, aux_stride;
} softgpu_description;

typedef struct softgpu_preference {
    uint64_t workspace;
    uint32_t mask, aligned[4]; /* A, B, C, D */
} softgpu_preference;

#endif
