/* Stored tensors: in one safetensors file or in many, whole or in parts, read box by box.
 *
 * A file with parts states their offsets in its metadata, as PyTorch's distributed checkpoints
 * in this format do. "shape", of the whole tensor, is our addition:
 *
 *     "DCP_SHARDING_INFO": {"NAME": {"saved_offsets": [4, 0], "shape": [8, 6]}, ...}
 *
 * A weight that is held in blocks (choir/hold.h) is a tensor of bytes, and the metadata have
 * its type:
 *
 *     "CHOIR_BLOCKS": {"NAME": "q4_K", ...}
 *
 * Files are mapped, so only the boxes that are asked for are read. */
#ifndef CHOIR_STORED_H
#define CHOIR_STORED_H

#include "checkpoint/items.h"

#include <choir/tensor.h>
#include <jansson.h>
#include "base/base.h"
#include "checkpoint/format/safetensors.h"

#define CHOIR__SHARDING_KEY "DCP_SHARDING_INFO"
#define CHOIR__BLOCKS_KEY   "CHOIR_BLOCKS"

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
    char *where;  /* name for messages about the whole checkpoint */
    char **paths; /* (file_count) */
    choir__st_file **files;
    int file_count;
    choir__stored_part *parts; /* (part_count), by name */
    choir_shape *shapes; /* (part_count) of the whole tensor, as the part's file gives it */
    choir__stored_tensor *tensors; /* (count), by name: complete, each entry once */
    int part_count, count;
} choir__stored;

/* Opens and checks files (count, may be 0). If one is invalid, none stays open. Errors: io,
 * format, naming file and tensor. */
choir_status choir__stored_open(
    choir__stored *stored, const char *where, const char *const *paths, int count);
/* Opens files of another kind, by its opener. Their tensors may be packed (format/packed.h). */
typedef choir_status choir__stored_opener(const char *path, choir__st_file **file);
choir_status choir__stored_open_as(choir__stored *stored, const char *where,
    const char *const *paths, int count, choir__stored_opener *open_file);
void choir__stored_close(choir__stored *stored);
const choir__stored_tensor *choir__stored_find(const choir__stored *stored, const char *name);

/* Returns the memory of bytes of the mapped files to the system, because they are not needed
 * for now. Memory that is not mapped stays as it is. */
void choir__stored_forget(const choir__stored *stored, const void *data, size_t bytes);

/* Returns what the files state of blocks, an object of the types' names by tensor, which the
 * caller decrefs. */
json_t *choir__stored_blocks(const choir__stored *stored);

/* Returns the path of the tensor's first file, for messages. */
const char *choir__stored_path(const choir__stored *stored, const choir__stored_tensor *t);

/* Reads a region of a tensor into data (count of region, row-major), converted to dtype. */
void choir__stored_read(const choir__stored_tensor *t, const choir__box_region *region,
    void *data, choir_dtype dtype);

/* Checks that items [first, first + count) can be restored, and that nothing else is stored.
 * what: "model" or "optimizer". finite: refuses weights that are not finite. Errors: format. */
choir_status choir__stored_match(const choir__stored *stored, const choir__items *items,
    int first, int count, const char *what, bool finite);
/* Fills the boxes of these items that this process holds; call choir__stored_match before.
 * Errors: memory, and as choir_write. */
choir_status choir__stored_restore(
    const choir__stored *stored, const choir__items *items, int first, int count);

/* Internals of loading. */

/* Opens the weights of a checkpoint's folder (with moments: the optimizer's state) as listed in
 * the manifest's "files". Errors: io, format. */
choir_status choir__stored_open_kind(
    choir__stored *stored, const char *folder, json_t *files, bool moments);

/* Numbers of any type at any address, as files contain them. */

/* Returns whether `from` can be converted to `to`: any float type to any float type, through
 * f32; every other type only to itself. */
bool choir__convertible(choir_dtype to, choir_dtype from);
/* Converts in (count) of type `from` to out (count) of type `to`. */
void choir__numbers_convert(
    void *out, choir_dtype to, const void *in, choir_dtype from, size_t count);

/* Returns the index of the first entry of in (count) that is not finite as f32, or -1. */
int64_t choir__first_nonfinite(const void *in, choir_dtype dtype, size_t count, float *value);

/* Checks the entries in (count) of a tensor named `name`, all of it or a part. Counters pass.
 * Returns `code` and names the file, the tensor and the first entry that is not finite. */
typedef struct choir__checked {
    const char *path, *name;
    choir_shape whole;
    choir_dtype dtype;
    bool part; /* the entries are a part of the whole */
} choir__checked;
choir_status choir__check_finite(
    choir_status code, const choir__checked *what, const void *in, size_t count);

#endif
