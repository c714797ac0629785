/* Named tensors of a module or an optimizer's state, for reading from and writing to a
 * safetensors file. */
#ifndef CHOIR_WEIGHTS_H
#define CHOIR_WEIGHTS_H

#include <choir/nn.h>
#include "checkpoint/format/safetensors.h"

typedef struct choir__named {
    char *name;
    choir_tensor *tensor;
    const choir__st_tensor *stored; /* entry of the tensor in a file, once matched */
} choir__named;

/* Sorted by name. One block of host memory holds the data being copied. */
typedef struct choir__named_list {
    choir__named *items;
    int count;
    void *host;
} choir__named_list;

/* Lists the parameters and buffers of a module. Error: the run's. */
choir_status choir__named_module(choir__named_list *list, choir_module *module);
void choir__named_free(choir__named_list *list);

/* For callers that match tensors by themselves. choir__named_accept checks that a tensor can be
 * restored from `stored` and records it. choir__named_ready, called last, allocates memory for
 * copying. */
choir_status choir__named_accept(choir__named *item, const choir__st_tensor *stored,
    const char *path, const char *what, bool finite);
choir_status choir__named_ready(choir__named_list *list, const char *path);
/* Copies every tensor that was matched; others stay unchanged. */
choir_status choir__named_restore(choir__named_list *list);

#endif
