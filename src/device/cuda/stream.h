/* A context and its stream (device/stream.h), for a device's queue or a group's. */
#ifndef CHOIR_CUDA_STREAM_H
#define CHOIR_CUDA_STREAM_H

#include "device/cuda/cuda.h"
#include "device/stream.h"

/* Makes a stream on a GPU, with its own context; device: its device, NULL for a group. Returns
 * NULL, with a message, if CUDA refuses. The stream's `free` frees both. */
choir__gpu_stream *choir__cuda_stream_new(int gpu, choir_device *device);
choir__cuda *choir__cuda_context_of(choir__gpu_stream *stream);

/* A task that lets the GPU copy bytes to host memory or elsewhere. */
typedef struct choir__cuda_transfer_args {
    void *to;
    const void *from;
    size_t bytes;
} choir__cuda_transfer_args;

void choir__cuda_transfer(const void *args);

#endif
