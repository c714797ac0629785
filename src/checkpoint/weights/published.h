/* Loading published weights into a model: one safetensors file, or several with an index.
 *
 * Names in such files vary in a few known ways, which `choir__published` lists for each model:
 * a prefix left out, tied weights present or not, entries that are not parameters, heads for
 * another task. Everything is found and checked before anything changes. */
#ifndef CHOIR_PUBLISHED_H
#define CHOIR_PUBLISHED_H

#include <choir/nn.h>
#include <choir/models.h>
#include "checkpoint/format/safetensors.h"
#include "nn/models/config.h"

/* Named tensors of a module or an optimizer's state, for reading from and writing to a
 * safetensors file. */

typedef struct choir__named {
    char *name;
    choir_tensor *tensor;
    const choir__st_tensor *stored; /* its entry in a file, once matched */
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

typedef struct choir__published_opts {
    const choir__published *names; /* NULL: exactly the module's names */
    const char *model;             /* in full, for messages */
    /* entries that match `names->fresh`, a head's, may be missing, or have another shape */
    choir_head head;
} choir__published_opts;

/* path: a .safetensors file, a *.index.json, or a folder with model.safetensors or
 * model.safetensors.index.json. notes: one line for each entry that was left out or keeps its
 * initial value, or ""; the caller frees it. Errors: io, format, naming file and tensor. */
choir_status choir__published_load(
    choir_module *module, const char *path, choir__published_opts opts, char **notes);

#endif
