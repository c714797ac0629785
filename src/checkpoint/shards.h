/* Weights in one safetensors file or in several, as one sorted list of tensors.
 *
 *     model.safetensors.index.json
 *         {"metadata": {...}, "weight_map": {"TENSOR": "model-00001-of-00002.safetensors",
 * ...}}
 */
#ifndef CHOIR_SHARDS_H
#define CHOIR_SHARDS_H

#include "checkpoint/safetensors.h"

typedef struct choir__shard_entry {
    const choir__st_tensor *tensor;
    int file;
    bool used; /* free for the reader's use */
} choir__shard_entry;

typedef struct choir__shards {
    char *path; /* the path that was opened, for messages */
    choir__st_file **files;
    char **paths;
    int file_count;
    choir__shard_entry *entries; /* by name */
    int count;
} choir__shards;

/* path: a .safetensors file, a *.index.json, or a folder that contains such a file named
 * model.*. On failure nothing stays open. Errors: io, format. */
choir_status choir__shards_open(choir__shards *shards, const char *path);
void choir__shards_close(choir__shards *shards);
choir__shard_entry *choir__shards_find(const choir__shards *shards, const char *name);
/* Returns whether a folder contains such files. */
bool choir__shards_present(const char *folder);
/* Returns the path of the file that contains an entry. */
const char *choir__shards_path(const choir__shards *shards, const choir__shard_entry *entry);

#endif
