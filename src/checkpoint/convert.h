/* Checkpoints made anew in another form: fewer or more files, whole tensors, other types. */
#ifndef CHOIR_CONVERT_H
#define CHOIR_CONVERT_H

#include <jansson.h>
#include "checkpoint/checkpoint.h"
#include "checkpoint/stored.h"

/* What a path holds: a checkpoint, or weights from elsewhere. */
typedef struct choir__opened {
    char *folder;   /* NULL: a file alone */
    bool has_state; /* the next two are there */
    choir_train_state state;
    json_t *files; /* its manifest */
    choir__stored model, optimizer;
} choir__opened;

/* path: as choir__checkpoint_find has it, or a folder with *.safetensors. hashed: compares
 * every file with the manifest, if there is one. Errors: io, format. */
choir_status choir__opened_open(choir__opened *opened, const char *path, bool hashed);
void choir__opened_close(choir__opened *opened);

typedef struct choir__convert_opts {
    int shards; /* files to make of the weights, and of the optimizer's state */
    bool typed; /* weights get dtype, a float's; else they keep theirs */
    choir_dtype dtype;
} choir__convert_opts;

/* Writes what is opened to a new folder; weights alone if `to` ends in .safetensors. Tensors
 * are whole in what is made. It appears whole or not at all. Errors: argument (`to` is there
 * already; several shards in a file), io. */
choir_status choir__checkpoint_convert(
    const choir__opened *from, const char *to, choir__convert_opts opts);

#endif
