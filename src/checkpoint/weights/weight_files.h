/* The files of weights in a folder, under the names that other programs give them.
 *
 *     model.safetensors, model.VARIANT.safetensors                    transformers
 *     model.safetensors.index[.VARIANT].json, with its files          transformers, Choir
 *     shard-*-model-*.safetensors                                     PyTorch's distributed
 * writer
 */
#ifndef CHOIR_WEIGHT_FILES_H
#define CHOIR_WEIGHT_FILES_H

#include <choir/status.h>
#include "base/base.h"

typedef struct choir__weight_files {
    char *path; /* for messages: the one file, the index, or the folder of parts */
    char **files;
    int count; /* 0: path is an index, whose contents name the files */
} choir__weight_files;

/* Finds the files that a path refers to: a .safetensors file, a *.index.json, or a folder.
 * Errors: io (a folder without weights; one with weights that are not read, which the message
 * names; several variants). */
choir_status choir__weight_files_find(const char *path, choir__weight_files *found);
void choir__weight_files_free(choir__weight_files *found);
void choir__weight_files_add(choir__weight_files *found, char *path);

/* Adds all files in the folder of `beside` whose name matches the pattern (as fnmatch), in
 * order of their names. */
void choir__weight_files_match(
    choir__weight_files *found, const char *beside, const char *pattern);

/* Returns whether a folder contains weights under any name, also one that is not read. */
bool choir__weights_present(const char *folder);

#endif
