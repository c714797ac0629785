/* The safetensors format: eight bytes with the header's length, a JSON header, the tensors'
 * bytes.
 *
 *     {"__metadata__": {...strings...},
 *      "NAME": {"dtype": "F32", "shape": [...], "data_offsets": [a, b]}}
 *
 * https://github.com/huggingface/safetensors. The header is checked in full before any memory
 * is allocated by it. */
#ifndef CHOIR_SAFETENSORS_H
#define CHOIR_SAFETENSORS_H

#include <choir/tensor.h>
#include <jansson.h>
#include "base/quant/quant.h"
#include "checkpoint/format/sha256.h"

typedef struct choir__st_tensor {
    char *name;
    choir_dtype dtype;
    choir_shape shape;
    /* Row-major, little-endian. When reading, it points into the file's mapping, at any
     * address: files of other programs need not be aligned. */
    const void *data;
    size_t bytes;
    /* type of the rows' blocks in files of other kinds (packed.h), where dtype is F32; F32:
     * data are numbers of dtype */
    choir__quant blocks;
    /* number of heads whose rows are in another order; 0: all rows are in order */
    int64_t heads;
    void *own; /* memory that has the data, freed with the file; NULL: the file has them */
} choir__st_tensor;

typedef struct choir__st_file choir__st_file;

/* Maps and checks a file. Errors: io, format. */
choir_status choir__st_open(const char *path, choir__st_file **file);
void choir__st_close(choir__st_file *file); /* NULL is fine */
int choir__st_count(const choir__st_file *file);
const choir__st_tensor *choir__st_get(const choir__st_file *file, int i);
/* Returns a string of the metadata, or NULL. */
const char *choir__st_metadata(const choir__st_file *file, const char *key);

/* Sets order (count) to the indices of the tensors in the order in which a file stores them. */
void choir__st_order(const choir__st_tensor *tensors, int count, int *order);

/* Sets *data to the bytes of tensors[i], valid until the next call. */
typedef choir_status choir__st_source(void *arg, int i, const void **data);

/* Writes a file that appears whole or not at all: writes PATH.tmp.MARK, fsync, rename, fsync of
 * the folder. Calls source for each tensor's bytes in turn, and reports the file's digest.
 * metadata: key, value, key, value, ..., NULL; may be NULL. */
choir_status choir__st_stream(const char *path, const choir__st_tensor *tensors, int count,
    const char *const *metadata, choir__st_source *source, void *arg, choir__digest *digest);

/* A file that is written one tensor after another, so that a caller can write several files at
 * once. On failure nothing stays open. Errors: io, argument. */
typedef struct choir__st_out choir__st_out;
choir_status choir__st_out_open(choir__st_out **out, const char *path,
    const choir__st_tensor *tensors, int count, const char *const *metadata);
/* Returns the index in tensors of the one that comes next, or -1 at the end. */
int choir__st_out_next(const choir__st_out *out);
/* Writes the tensor that comes next. */
choir_status choir__st_out_put(choir__st_out *out, const void *data);
/* Returns the part of the tensors' bytes that has been written, from 0 to 1. */
double choir__st_out_progress(const choir__st_out *out);
/* Ends the file like choir__draft_close. digest may be NULL. */
choir_status choir__st_out_close(
    choir__st_out *out, choir_status status, choir__digest *digest);

/* --- a file that is being read, for safetensors_read.c and safetensors_header.c --- */

enum { CHOIR__ST_LENGTH = 8 }; /* bytes of the header's length, before the header */

struct choir__st_file {
    char *path;
    char *map;
    size_t size, header_bytes;
    json_t *metadata; /* NULL: no metadata */
    choir__st_tensor *tensors;
    int count;
};

/* "PATH: tensor 'NAME'", with a name of any length shortened for a message. */
#define CHOIR__ST_TENSOR "%s: tensor '%.200s' "

/* Sorts the tensors by name, as an open file has them. */
void choir__st_sort(choir__st_file *f);

/* Reads and checks the header's tensors, in the header's order, and its metadata. The caller
 * has checked that the file has f->header_bytes. Error: format. */
choir_status choir__st_read_header(choir__st_file *f);

#endif
