/* A GGUF file as a folder that transformers and Choir read. */
#ifndef CHOIR_GGUF_IMPORT_H
#define CHOIR_GGUF_IMPORT_H

#include <choir/dtype.h>
#include <choir/status.h>
#include <stdbool.h>

/* Returns whether a path has the name of a GGUF file; and whether it is no folder, either. */
bool choir__is_gguf(const char *path);
bool choir__is_gguf_file(const char *path);

/* Writes config.json, tokenizer.json, tokenizer_config.json and model.safetensors, with weights
 * of that dtype, into a new folder, which appears whole or not at all. advice: what helps where
 * the disk has too little room for the weights, which is found out before any is written.
 * Errors: io, format, unsupported (a family, a tokenizer or a type that is not read),
 * nonfinite. */
choir_status choir__gguf_import(
    const char *path, const char *folder, choir_dtype dtype, const char *advice);

/* Writes such a folder without the weights. */
choir_status choir__gguf_import_small(const char *path, const char *folder);

#endif
