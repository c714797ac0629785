/* What the files of data/ share: reading a file whole, sizes of samples, and a tokenizer's
 * inner loop. */
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

/* The id of the character at *at, which moves past it; -1, leaving *at, where it has none. */
int64_t choir__tokenizer_next(
    const choir_tokenizer *tokenizer, const char **at, const char *end);

/* Says why choir__tokenizer_next stopped at `at`. name: of the text; NULL: unknown. */
choir_status choir__tokenizer_stopped(const choir_tokenizer *tokenizer, const char *name,
    const char *text, const char *at, const char *end);

bool choir__is_utf8(const char *text, size_t bytes);

#endif
