/* A model in a GGUF file: its sizes as a config.json, and its tensors under the names that
 * transformers has for them. */
#ifndef CHOIR_GGUF_MODEL_H
#define CHOIR_GGUF_MODEL_H

#include <jansson.h>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/gguf/family.h"

typedef struct choir__gguf_model {
    const char *path;
    choir__gguf_in *in;
    const choir__gguf_family *family;
    choir__gguf_heads heads;
} choir__gguf_model;

/* Opens a file. The caller closes it also after an error. Errors: io, format, unsupported (a
 * family or a type that is not read; a part of a model). */
choir_status choir__gguf_model_open(choir__gguf_model *model, const char *path);
void choir__gguf_model_close(choir__gguf_model *model);

/* Reports a thing that is not read, as "FILE: WHAT 'NAME'". Returns CHOIR_ERR_UNSUPPORTED. */
choir_status choir__gguf_refuse(
    const choir__gguf_model *model, const char *what, const char *name);
/* Stores the number under "ARCHITECTURE.END" and returns true, or returns false without one. */
bool choir__gguf_model_number(const choir__gguf_model *model, const char *end, double *value);

/* Stores the text of its config.json, which the caller frees. Errors: unsupported (rotary
 * positions that are scaled in another way; sizes that no model has). */
choir_status choir__gguf_config(const choir__gguf_model *model, char **text);
/* Opens the file for its config.json alone. */
choir_status choir__gguf_read_config(const char *path, char **text);

/* Opens the tensors of the file, sorted by name. Blocks and numbers of 16 bits stay where they
 * are mapped (format/packed.h). Tensors that no type of blocks can express are in memory, as
 * f32: norms to which the file has added 1, and transposed matrices. Errors: as
 * choir__gguf_config, memory. */
choir_status choir__gguf_tensors_open(const char *path, choir__st_file **file);

#endif
