/* Named tensors on their way to and from a safetensors file: a module's, or an optimizer's
 * state. */
#ifndef CHOIR_WEIGHTS_H
#define CHOIR_WEIGHTS_H

#include <choir/nn.h>
#include "checkpoint/safetensors.h"

typedef struct choir__named {
    char *name;
    choir_tensor *tensor;
    const choir__st_tensor *stored; /* its place in a file, once matched */
} choir__named;

/* In name order. One block of host memory holds what is on its way. */
typedef struct choir__named_list {
    choir__named *items;
    int count;
    void *host;
} choir__named_list;

/* Parameters and buffers of a module. Error: the run's. */
choir_status choir__named_module(choir__named_list *list, choir_module *module);
/* Any that `visit` was given; then choir__named_sort. */
void choir__named_add(const char *name, choir_tensor *t, void *list);
void choir__named_sort(choir__named_list *list);
void choir__named_free(choir__named_list *list);

/* For those that find tensors in their own way. Accept: notes what a tensor is restored from,
 * if that can be. Ready: last of all, memory for the copying. */
choir_status choir__named_accept(choir__named *item, const choir__st_tensor *stored,
    const char *path, const char *what, bool finite);
choir_status choir__named_ready(choir__named_list *list, const char *path);
/* Copies what was matched; what has nothing stored stays as it is. */
choir_status choir__named_restore(choir__named_list *list);

#endif
