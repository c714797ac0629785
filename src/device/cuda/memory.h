/* Memory of GPUs: for pools and for kernels' scratch, copied to and from the host, and shared
 * with other processes. */
#ifndef CHOIR_CUDA_MEMORY_H
#define CHOIR_CUDA_MEMORY_H

#include "device/cuda/cuda.h"
#include "device/far.h"

extern const choir__memory_ops choir__cuda_memory; /* expects a choir__cuda as arg */
extern const choir__far choir__cuda_far;

/* Finds this process's own allocation that contains p, and its GPU. */
bool choir__cuda_region_of(const char *p, char **at, int *gpu);

/* Counts the times that the allocation was shown to other processes (+1) and hidden again (-1).
 * While the count is above zero it is not given back to CUDA. */
void choir__cuda_region_shown(const void *p, int change);

/* Returns memory on the context's GPU that lives as long as the context; NULL: out of
 * memory. */
void *choir__cuda_get(choir__cuda *cuda, size_t bytes);

void choir__cuda_scratch_free(choir__cuda *cuda);

/* Writes "; 3.1 of 139.7 GiB of GPU 0 are free, other processes or devices have ..." */
void choir__cuda_memory_note(const choir_device *device, char *text, size_t bytes);

#endif
