/* Types of the tensors of a GGUF file, by the name of the file's own type. */
#ifndef CHOIR_JOB_EXPORT_GGUF_TYPES_H
#define CHOIR_JOB_EXPORT_GGUF_TYPES_H

#include "base/quant/quant.h"
#include <choir/tensor.h>

/* Returns the type of a tensor. type: f32, f16, bf16, q8_0, q4_0 or q4_K_M; name: in the file;
 * layer: its layer of `layers`, or -1; has_output: scores have a matrix of their own. */
choir__quant choir__gguf_type_of(const char *type, const char *name, choir_shape shape,
    int layer, int64_t layers, bool has_output);

/* Returns the number of a file's type in "general.file_type". */
uint32_t choir__gguf_file_type(const char *type);

/* Names of the types that are blocks; NULL behind the last. */
const char *choir__gguf_block_types(size_t index);

#endif
