/* Conversion of checkpoints: to fewer or more files, whole tensors, other types. */
#ifndef CHOIR_CONVERT_H
#define CHOIR_CONVERT_H

#include <jansson.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored.h"

/* The contents of a path: a checkpoint, or weights from elsewhere. */
typedef struct choir__opened {
    char *folder;   /* NULL: a single file */
    bool has_state; /* state and files are valid */
    choir_train_state state;
    json_t *files; /* the checkpoint's manifest */
    choir__stored model, optimizer;
} choir__opened;

/* path: as for choir__checkpoint_find, or a folder with *.safetensors. hashed: compares every
 * file with the manifest, if it exists. Errors: io, format. */
choir_status choir__opened_open(choir__opened *opened, const char *path, bool hashed);
void choir__opened_close(choir__opened *opened);

typedef struct choir__convert_opts {
    int shards; /* number of files for the weights, and for the optimizer's state */
    bool typed; /* weights are converted to dtype, a float type; else they keep theirs */
    choir_dtype dtype;
} choir__convert_opts;

/* Writes an opened checkpoint to a new folder, or only its weights if `to` ends in
 * .safetensors. The result contains whole tensors. It appears whole or not at all. Errors:
 * argument (`to` already exists; several shards in a single file), io. */
choir_status choir__checkpoint_convert(
    const choir__opened *from, const char *to, choir__convert_opts opts);

/* Makes a folder's config.json, if it has one, state the type of the weights. Errors: io. */
choir_status choir__config_state_dtype(const char *folder, choir_dtype dtype);

#endif
