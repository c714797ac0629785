/* Memory of GPUs: for pools, for kernels' scratch, copied to and from the host, and shown to
 * other processes. */
#ifndef CHOIR_CUDA_MEMORY_H
#define CHOIR_CUDA_MEMORY_H

#include "device/cuda/cuda.h"
#include "device/far.h"

extern const choir__memory_ops choir__cuda_memory; /* arg: a choir__cuda */
extern const choir__far choir__cuda_far;

/* The allocation that p lies in, of this process's own, and its GPU. */
bool choir__cuda_region_of(const char *p, char **at, int *gpu);

/* Memory on the context's GPU that stays for as long as it; NULL: none left. */
void *choir__cuda_get(choir__cuda *cuda, size_t bytes);

void choir__cuda_scratch_free(choir__cuda *cuda);

/* "; 3.1 of 139.7 GiB of GPU 0 are free, other processes or devices have ..." */
void choir__cuda_memory_note(const choir_device *device, char *text, size_t bytes);

#endif
