/* Loading published weights into a model: one safetensors file, or several with an index.
 *
 * Names in such files vary in a few known ways, which `choir__published` lists for each model:
 * a prefix left out, tied weights present or not, entries that are not parameters, heads for
 * another task. Everything is found and checked before anything changes. */
#ifndef CHOIR_PUBLISHED_H
#define CHOIR_PUBLISHED_H

#include <choir/nn.h>
#include <choir/models.h>
#include "nn/models/config.h"

typedef struct choir__published_opts {
    const choir__published *names; /* NULL: exactly the module's names */
    const char *model;             /* model with all options, for messages */
    /* entries that match `names->fresh`, a head's, may be missing, or have another shape */
    choir_head head;
    /* NULL: the weights are the model's; else adapters (adapter.h), whose names begin with it
     */
    const char *lead;
} choir__published_opts;

/* path: a .safetensors file, a *.index.json, or a folder with model.safetensors or
 * model.safetensors.index.json. notes: one line for each entry that was left out or keeps its
 * initial value, or ""; the caller frees it. Errors: io, format, naming file and tensor. */
choir_status choir__published_load(
    choir_module *module, const char *path, choir__published_opts opts, char **notes);

#endif
