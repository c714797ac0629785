/* The tensors of a module by name, and the entries of files that they take. */
#ifndef CHOIR_NAMED_WEIGHTS_H
#define CHOIR_NAMED_WEIGHTS_H

#include <choir/nn.h>

#include "checkpoint/stored.h"

/* A tensor of a module, for reading from a safetensors file. */
typedef struct choir__named {
    char *name;
    choir_tensor *tensor;
    const choir__st_tensor *stored; /* entry of the tensor in a file, once matched */
} choir__named;

/* Sorted by name. One block of host memory holds the data being copied. */
typedef struct choir__named_list {
    choir__named *items;
    int count;
    bool adapters; /* adapters and modules beside them, instead of the model's own weights */
    size_t host_bytes;
    void *host;
    const choir__stored
        *files; /* mapped; bytes that were read are given back. NULL: they stay */
} choir__named_list;

/* Lists the parameters and buffers of a module; free with choir__named_free. Parameters may
 * have no values yet: those that are restored are never drawn. Error: the run's. */
choir_status choir__named_of(choir__named_list *list, choir_module *module);
void choir__named_free(choir__named_list *list);

/* Returns the shape of the whole tensor; t may be a rank's part of it. */
choir_shape choir__named_whole(const choir_tensor *t);

/* For callers that match tensors by themselves. accept checks that a tensor can be restored
 * from `stored` and records it. make_ready, called last, allocates memory for copying. restore
 * copies every tensor that was matched; others stay unchanged. Errors: format, memory. */
choir_status choir__named_accept(choir__named *item, const choir__st_tensor *stored,
    const char *path, const char *what, bool finite);
choir_status choir__named_make_ready(choir__named_list *list, const char *path);
choir_status choir__named_restore(choir__named_list *list);

#endif
