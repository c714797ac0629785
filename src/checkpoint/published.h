/* Weights from elsewhere, into a model: one safetensors file, or several with an index.
 *
 * The names in such files vary in a few known ways, which `choir__published` has for each
 * model: a prefix left out, tied weights there or not, entries that are no parameters, heads
 * for another task. Everything is found and checked before anything is changed. */
#ifndef CHOIR_PUBLISHED_H
#define CHOIR_PUBLISHED_H

#include <choir/nn.h>
#include "nn/models/config.h"

typedef struct choir__published_opts {
    const choir__published *names; /* NULL: those of the module and no others */
    const char *model;             /* in full, for messages */
    bool fresh; /* what `names->fresh` matches may be missing: training starts it anew */
} choir__published_opts;

/* path: a .safetensors file, a *.index.json, or a folder with model.safetensors or
 * model.safetensors.index.json in it. notes: what was left out or starts anew, a line each, ""
 * for nothing; the caller frees it. Errors: io, format, naming file and tensor. */
choir_status choir__published_load(
    choir_module *module, const char *path, choir__published_opts opts, char **notes);

#endif
