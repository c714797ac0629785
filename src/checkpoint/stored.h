/* What is stored: tensors in one safetensors file or in many, whole or in parts, and the boxes
 * of them that somebody wants.
 *
 * A file with parts says in its metadata where they lie, as PyTorch's distributed checkpoints
 * in this format do; "shape", of the whole, is our addition:
 *
 *     "DCP_SHARDING_INFO": {"NAME": {"saved_offsets": [4, 0], "shape": [8, 6]}, ...}
 *
 * Files are mapped, so only what is wanted is read. */
#ifndef CHOIR_STORED_H
#define CHOIR_STORED_H

#include "checkpoint/items.h"
#include "checkpoint/safetensors.h"

#define CHOIR__SHARDING_KEY "DCP_SHARDING_INFO"

typedef struct choir__stored_part {
    const choir__st_tensor *tensor; /* name, type, data */
    choir__box_region region;
    int file;
} choir__stored_part;

typedef struct choir__stored_tensor {
    const char *name;
    choir_dtype dtype;
    choir_shape whole;
    const choir__stored_part *parts; /* (part_count) */
    int part_count;
} choir__stored_tensor;

typedef struct choir__stored {
    char *where;  /* for messages about all of it */
    char **paths; /* (file_count) */
    choir__st_file **files;
    int file_count;
    choir__stored_part *parts;     /* (part_count), by name */
    choir_shape *shapes;           /* (part_count) of the whole, as the part's file has it */
    choir__stored_tensor *tensors; /* (count), by name: complete, each entry once */
    int part_count, count;
} choir__stored;

/* Opens and checks files (count, may be 0), of which nothing stays open if one is bad. Errors:
 * io, format, naming file and tensor. */
choir_status choir__stored_open(
    choir__stored *stored, const char *where, const char *const *paths, int count);
void choir__stored_close(choir__stored *stored);
const choir__stored_tensor *choir__stored_find(const choir__stored *stored, const char *name);

/* The file that most of an error is about. */
const char *choir__stored_path(const choir__stored *stored, const choir__stored_tensor *t);

/* data (count of region, row-major) of type dtype = that region of a tensor. */
void choir__stored_read(const choir__stored_tensor *t, const choir__box_region *region,
    void *data, choir_dtype dtype);

/* Checks that items [first, first + count) can be restored, and that there is nothing else.
 * what: "model", "optimizer". finite: refuses weights that are not. Errors: format. */
choir_status choir__stored_match(const choir__stored *stored, const choir__items *items,
    int first, int count, const char *what, bool finite);
/* Then: fills the boxes that this process has of them. Errors: memory, those of choir_write. */
choir_status choir__stored_restore(
    const choir__stored *stored, const choir__items *items, int first, int count);

#endif
