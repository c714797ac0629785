/* Weights that are held as a file has them: its types by name, and then nn/hold.c. */
#include "checkpoint/weights/blocks.h"

#include <stdlib.h>
#include <string.h>

#include "checkpoint/gguf/import.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/state.h"
#include "checkpoint/stored.h"
#include "nn/hold.h"

/* --- the types --- */

/* Returns the type of a weight that is not in blocks. */
static choir__quant plain_type(choir_dtype dtype)
{
    return dtype == CHOIR_F16 ? CHOIR__F16 : dtype == CHOIR_BF16 ? CHOIR__BF16 : CHOIR__F32;
}

static void add(json_t *types, const char *name, choir__quant type)
{
    json_object_set_new(types, name, json_string(choir__quant_types[type].name));
}

static choir_status of_gguf(const char *path, json_t *types)
{
    choir__st_file *file = NULL;
    choir_status status = choir__gguf_tensors_open(path, &file);
    for (int i = 0; status == CHOIR_OK && i < choir__st_count(file); i++) {
        const choir__st_tensor *t = choir__st_get(file, i);
        const choir__quant plain = plain_type(t->dtype);
        add(types, t->name, plain == CHOIR__F32 ? t->blocks : plain);
    }
    choir__st_close(file);
    return status;
}

static choir_status of_checkpoint(const char *folder, bool halves, json_t *types)
{
    choir_train_state state;
    json_t *files = NULL;
    choir__stored stored = {0};
    choir_status status = choir__state_read(folder, &state, &files);
    if (status == CHOIR_OK)
        status = choir__stored_open_kind(&stored, folder, files, false);
    for (int i = 0; halves && i < stored.count; i++)
        if (plain_type(stored.tensors[i].dtype) != CHOIR__F32)
            add(types, stored.tensors[i].name, plain_type(stored.tensors[i].dtype));
    json_t *stated = choir__stored_blocks(&stored);
    json_object_update(types, stated);
    json_decref(stated);
    choir__stored_close(&stored);
    json_decref(files);
    return status;
}

/* --- the module --- */

static choir__quant type_of(const char *name, void *types)
{
    const char *text = json_string_value(json_object_get(types, name));
    for (int i = 0; text && i < CHOIR__QUANT_COUNT; i++)
        if (!strcmp(choir__quant_types[i].name, text))
            return (choir__quant)i;
    return CHOIR__F32;
}

choir_status choir__hold_as_stored(choir_module *module, const char *path, bool halves)
{
    json_t *types = json_object();
    choir_status status =
        choir__is_gguf_file(path) ? of_gguf(path, types) : of_checkpoint(path, halves, types);
    if (status == CHOIR_OK && json_object_size(types))
        status = choir__module_hold_each(module, type_of, types);
    json_decref(types);
    return status;
}
