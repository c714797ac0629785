/* Adapters as peft's folders have them:
 *
 *     adapter_config.json          rank, scale, targets, the base's name
 *     adapter_model.safetensors    "base_model.model.PATH.lora_A.weight", lora_B, and the
 * weights of modules that are trained whole
 *
 * The file's metadata has the SHA-256 of the base's frozen weights if Choir wrote it, so that
 * an adapter is not applied to another base. */
#ifndef CHOIR_ADAPTER_H
#define CHOIR_ADAPTER_H

#include <choir/group.h>
#include <choir/lora.h>
#include <choir/model_info.h>

#include <string.h>

#include "base/base.h"
#include "base/quant/quant.h"

#define CHOIR__ADAPTER_CONFIG  "adapter_config.json"
#define CHOIR__ADAPTER_WEIGHTS "adapter_model.safetensors"
#define CHOIR__ADAPTER_LEAD    "base_model.model." /* all names of weights begin with it */
#define CHOIR__ADAPTER_HASHED  "choir.base_sha256" /* the metadata's key */

typedef struct choir__adapter_file {
    choir_lora_opts opts; /* with texts that choir__adapter_free frees */
    char *base;           /* base_model_name_or_path; NULL: none is named */
} choir__adapter_file;

/* Returns whether a folder has an adapter and no model. */
bool choir__is_adapter(const char *path);

/* Reads the folder's configuration. The caller frees it also after an error. Errors: io, format
 * (a kind of adapter that Choir lacks, by its key). */
choir_status choir__adapter_read(const char *folder, choir__adapter_file *file);
void choir__adapter_free(choir__adapter_file *file);

/* Returns the name of the weight that an entry copies, or NULL; the caller frees it.
 * Beside a table that is trained whole, peft also saves the parts of its wrapper,
 * "lm_head.modules_to_save.weight" and "lm_head.original_module.weight". */
static inline char *choir__adapter_twin(const char *name)
{
    static const char *const parts[] = {".modules_to_save.", ".original_module."};
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++) {
        const char *at = strstr(name, parts[i]);
        if (at)
            return choir__format("%.*s.%s", (int)(at - name), name, at + strlen(parts[i]));
    }
    return NULL;
}

/* Returns whether an entry is a copy of a base's weight, which peft saves of an adapted head.
 */
static inline bool choir__adapter_copies_base(const char *name)
{
    static const char end[] = ".base_layer.weight";
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

/* Loads the folder's weights into a module with such adapters, whose other weights are the
 * base's. Collective. Errors: as choir_model_load_weights; mismatch (another base). */
choir_status choir__adapter_load(
    choir_module *module, const char *model, const char *folder, choir_group *group);

/* Stores on rank 0 the hash of all parameters that neither adapters nor modules beside them
 * replace. Collective. Errors: as choir_weights_sha256. */
choir_status choir__base_sha256(choir_module *module, choir_group *group, char hex[65]);

typedef struct choir__adapter_made {
    const char *base;        /* NULL: unknown */
    const char *task;        /* peft's task_type; NULL: not one of its tasks */
    const char *base_sha256; /* "": unknown */
    choir_dtype dtype;
} choir__adapter_made;

/* Writes the two files into a folder. Errors: io, nonfinite (a number beyond the dtype). */
choir_status choir__adapter_write(
    choir_module *module, const choir__adapter_made *made, const char *folder);

/* The model's weights one by one, with adapters added to the weights that they adapt. */
typedef struct choir__merged choir__merged;

choir__merged *choir__merged_open(choir_module *module);
void choir__merged_close(choir__merged *merged);
int choir__merged_count(const choir__merged *merged);
/* Returns the name of weight number i, and stores its shape. */
const char *choir__merged_name(const choir__merged *merged, int i, choir_shape *shape);
/* Stores the values of weight number i as f32, row-major, which stay valid until the next call.
 * Errors: memory, as choir_read; dtype (a counter). */
choir_status choir__merged_read(choir__merged *merged, int i, const float **values);

/* Stores the rows of weight number i in blocks of the type, which stay valid until the next
 * call, if the weight is held in that type and has no adapter; otherwise stores NULL. Errors:
 * as choir__merged_read. */
choir_status choir__merged_blocks(
    choir__merged *merged, int i, choir__quant type, const uint8_t **blocks);

/* Writes all weights to a file, with adapters added to the weights that they adapt. Errors: as
 * above. */
choir_status choir__merged_write(choir_module *module, choir_dtype dtype, const char *path);

#endif
