/* What the files of data/ share: reading a file whole, sizes of samples, kinds of files. */
#ifndef CHOIR_DATASET_INTERNAL_H
#define CHOIR_DATASET_INTERNAL_H

#include <choir/data.h>
#include "base/base.h"

/* All of a file of at most `limit` bytes (0: any), with a '\0' behind; the caller frees *data.
 * Errors: io (naming the path and why), memory. */
choir_status choir__read_file(const char *path, size_t limit, char **data, size_t *bytes);

/* choir_dataset_get_epoch, whose error names the sample. */
choir_status choir__dataset_get_named(
    choir_dataset *dataset, int64_t epoch, int64_t index, void *x, void *y);

/* Bytes of a sample (or of `count` of them), checked: errors dtype, shape. what: "x" or "y". */
choir_status choir__sample_bytes(
    const char *what, choir_dtype dtype, choir_shape shape, int64_t count, size_t *bytes);

/* The options a loader was made with, micro_count filled in. */
const choir_loader_opts *choir__loader_opts(const choir_loader *loader);

/* Says where a text stops being UTF-8. name: of the text; NULL: unknown. */
choir_status choir__not_utf8(const char *name, const char *text, const char *at);

/* Whether a file holds ids, not text: by what it begins with, or a name that ends in .bin. */
bool choir__is_token_file(const char *path);

/* Of `count` tokens the first nine tenths, rounded down, are for training; and each split must
 * hold a window. Error: argument. */
int64_t choir__training_part(int64_t count);
choir_status choir__check_split(
    const char *name, const char *split, int64_t tokens, int64_t context);

#endif
