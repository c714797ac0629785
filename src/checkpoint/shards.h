/* Weights in one safetensors file or in several, as one sorted list of whole tensors.
 *
 *     model.safetensors.index.json
 *         {"metadata": {...}, "weight_map": {"TENSOR": "model-00001-of-00002.safetensors",
 * ...}}
 *
 * A GGUF file is such a list, too, whose tensors may be packed (format/packed.h).
 *
 * Whole tensors are read where the files are mapped. Joins, in memory, tensors whose parts are
 * in several files (stored.h). */
#ifndef CHOIR_SHARDS_H
#define CHOIR_SHARDS_H

#include "checkpoint/stored.h"

typedef struct choir__shard_entry {
    const choir__st_tensor *tensor;
    bool used; /* free for the reader's use */
} choir__shard_entry;

typedef struct choir__file_shards {
    char *path; /* the path that was opened, for messages */
    choir__stored stored;
    choir__st_tensor *tensors;   /* (count), whole */
    choir__shard_entry *entries; /* (count), by name */
    int count;
} choir__file_shards;

/* path: as for choir__weight_files_find. On failure nothing stays open. Errors: io, format,
 * memory. */
choir_status choir__file_shards_open(choir__file_shards *shards, const char *path);
/* Opens and closes the files without reading tensors. */
choir_status choir__file_shards_check(const char *path);
void choir__file_shards_close(choir__file_shards *shards);
choir__shard_entry *choir__file_shards_find(const choir__file_shards *shards, const char *name);
/* Returns the path of the file that contains an entry, or its first part. */
const char *choir__file_shards_path(
    const choir__file_shards *shards, const choir__shard_entry *entry);

#endif
