/* GGUF files, as llama.cpp and its relatives read and write them: numbers and texts under keys,
 * then tensors, whose rows are blocks of a type (base/quant/quant.h).
 *
 *     "GGUF" 3, numbers of tensors and of keys
 *     key, type, value ...
 *     tensor: name, dimensions (the last first), type, place ...
 *     data of the tensors, each at a multiple of 32 bytes
 *
 * All numbers are little-endian. */
#ifndef CHOIR_GGUF_H
#define CHOIR_GGUF_H

#include <choir/status.h>
#include <choir/tensor.h>

#include "base/quant/quant.h"

/* --- writing --- */

/* A file that is being made: keys and tensors in the order in which they were added. */
typedef struct choir__gguf_out choir__gguf_out;

choir__gguf_out *choir__gguf_new(void);
void choir__gguf_free(choir__gguf_out *out);

/* Add a value; texts are copied. */
void choir__gguf_u32(choir__gguf_out *out, const char *key, uint32_t value);
void choir__gguf_f32(choir__gguf_out *out, const char *key, float value);
void choir__gguf_bool(choir__gguf_out *out, const char *key, bool value);
void choir__gguf_text(choir__gguf_out *out, const char *key, const char *value);
void choir__gguf_texts(
    choir__gguf_out *out, const char *key, const char *const *values, int64_t count);
void choir__gguf_i32s(
    choir__gguf_out *out, const char *key, const int32_t *values, int64_t count);
void choir__gguf_f32s(
    choir__gguf_out *out, const char *key, const float *values, int64_t count);

/* Adds a tensor of a row-major shape, whose last dimension the type's blocks divide. */
void choir__gguf_tensor(
    choir__gguf_out *out, const char *name, choir_shape shape, choir__quant type);

/* Stores the values of tensor number i, row-major, or, in *blocks, the bytes that the file gets
 * for them. They stay valid until the next call. */
typedef choir_status choir__gguf_source(
    void *arg, int i, const float **values, const uint8_t **blocks);

/* Writes the file, which appears whole or not at all. Errors: io, nonfinite (a value that is no
 * number, or beyond its type), the source's. */
choir_status choir__gguf_write(
    const choir__gguf_out *out, const char *path, choir__gguf_source *source, void *arg);

/* --- reading --- */

typedef struct choir__gguf_tensor_info {
    const char *name;
    choir_shape shape; /* row-major */
    choir__quant type;
    const uint8_t *data;
    int64_t bytes;
} choir__gguf_tensor_info;

/* A mapped file. */
typedef struct choir__gguf_in choir__gguf_in;

/* Opens a file and checks everything but the tensors' values. Error: io, format (a file that is
 * cut short or states more than it has; tensors of an unknown type). */
choir_status choir__gguf_open(choir__gguf_in **in, const char *path);
void choir__gguf_close(choir__gguf_in *in);

/* Returns the mapping, which is the caller's from now on, to be unmapped. */
uint8_t *choir__gguf_take_map(choir__gguf_in *in, size_t *size);

int choir__gguf_count(const choir__gguf_in *in);
const choir__gguf_tensor_info *choir__gguf_get(const choir__gguf_in *in, int i);

/* Return the file's path, and key number i; NULL behind the last. */
const char *choir__gguf_path(const choir__gguf_in *in);
const char *choir__gguf_key_at(const choir__gguf_in *in, int i);

/* Return a value; false, or NULL: the key is missing, or has another kind of value. Texts and
 * arrays are the file's. */
bool choir__gguf_number(const choir__gguf_in *in, const char *key, double *value);
const char *choir__gguf_string(const choir__gguf_in *in, const char *key);
/* The entries of an array of texts, or of numbers, and their count. */
const char *const *choir__gguf_strings(
    const choir__gguf_in *in, const char *key, int64_t *count);
const double *choir__gguf_numbers(const choir__gguf_in *in, const char *key, int64_t *count);

/* The kinds of tokens in tokenizer.ggml.token_type. */
enum {
    CHOIR__GGUF_NORMAL = 1,
    CHOIR__GGUF_UNKNOWN,
    CHOIR__GGUF_CONTROL,
    CHOIR__GGUF_USER_DEFINED,
    CHOIR__GGUF_UNUSED,
    CHOIR__GGUF_BYTE
};

#endif
