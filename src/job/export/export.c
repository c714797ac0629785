/* A model leaves: it is opened as for an evaluation, and a format writes it into a folder that
 * appears whole or not at all. */
#include "job/export/export.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/weights/adapter.h"
#include "checkpoint/format/file.h"
#include "job/export/gguf_types.h"
#include "job/model/lora.h"

const char *choir__export_format_names(size_t i)
{
    size_t count = 0;
    while (choir__export_formats[count])
        count++;
    return i < count ? choir__export_formats[i]->name : NULL;
}

static const struct {
    const char *name;
    choir_dtype dtype;
} dtypes[] = {{"f32", CHOIR_F32}, {"f16", CHOIR_F16}, {"bf16", CHOIR_BF16}};

const char *choir__export_dtype_names(size_t i)
{
    return i < CHOIR_COUNT(dtypes) ? dtypes[i].name
                                   : choir__gguf_block_types(i - CHOIR_COUNT(dtypes));
}

static const choir__export_format *format_of(const char *name)
{
    const choir__export_format *const *f = choir__export_formats;
    while (*f && strcmp((*f)->name, name) != 0)
        f++;
    return *f;
}

static choir_dtype dtype_of(const char *name)
{
    size_t i = 0;
    while (i + 1 < CHOIR_COUNT(dtypes) && strcmp(dtypes[i].name, name) != 0)
        i++;
    return dtypes[i].dtype;
}

static bool is_blocks(const char *name)
{
    const char *block;
    for (size_t i = 0; (block = choir__gguf_block_types(i)); i++)
        if (!strcmp(block, name))
            return true;
    return false;
}

/* --- the model --- */

/* Reads the record of a checkpoint, and the job of the run around it, which names its base as a
 * path. */
static void read_run(choir__export *e)
{
    json_t *run = choir__file_json_in(e->from, "../" CHOIR__JOB_FILE),
           *options = json_object_get(run, "options");
    const char *model = json_string_value(json_object_get(options, "model")),
               *weights = json_string_value(json_object_get(options, "weights"));
    e->record = choir__file_json_in(e->from, CHOIR__JOB_FILE);
    if (model && choir_model_is_path(model))
        e->base = choir_model_path(model);
    else if (weights)
        e->base = choir__strdup(weights);
    json_decref(run);
}

static choir_status find_files(choir__export *e, const choir__export_request *r)
{
    char found[PATH_MAX];
    choir__adapter_file adapter = {0};
    choir_status status = CHOIR_OK;
    if (choir__is_adapter(r->path)) {
        status = choir__adapter_read(r->path, &adapter);
        e->from = adapter.base ? choir__strdup(adapter.base) : NULL;
        e->base = adapter.base ? choir__strdup(adapter.base) : NULL;
        choir__adapter_free(&adapter);
    } else if (choir_training_find(r->path, found) == CHOIR_OK && choir__is_folder(found) &&
               choir__folder_has(found, CHOIR__STATE_FILE)) {
        e->from = choir__strdup(found);
        e->trained = true;
        read_run(e);
    } else {
        e->from = choir__strdup(r->path);
        e->base = choir__strdup(r->path);
    }
    if (status == CHOIR_OK && e->from && choir__is_gguf_file(e->from)) {
        status = choir__unpack(e->from, &e->unpacked);
        free(e->from);
        e->from = e->unpacked.folder ? choir__strdup(e->unpacked.folder) : NULL;
    }
    return status;
}

static choir_status check(
    const choir__export *e, const choir__export_format *f, const char *path)
{
    if (f->adapters && !e->model.lora)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no adapters, which are all that the format %s has: choir train --lora makes "
            "them, and --format hf writes whole models",
            path, f->name);
    if (!f->blocks && is_blocks(e->type))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--dtype %s is of the format gguf: the format %s has f32, f16 and bf16", e->type,
            f->name);
    return CHOIR_OK;
}

/* Hashes the base's weights as they are here, or, if the training has rounded them, as its
 * folder has them; "" if that is no folder here. */
static choir_status hash_base(choir__export *e)
{
    if (!e->model.rounded)
        return choir__base_sha256(e->model.net, NULL, e->base_sha256);
    choir__saved base;
    if (!e->base || !(choir__is_folder(e->base) || choir__is_gguf_file(e->base)))
        return CHOIR_OK;
    choir_status status = choir__saved_open(e->base, NULL, 42, &base);
    if (status == CHOIR_OK && !base.lora)
        status = choir__lora_add(e->model.lora, &base.info, base.net);
    if (status == CHOIR_OK)
        status = choir__base_sha256(base.net, NULL, e->base_sha256);
    choir__saved_close(&base);
    return status;
}

static choir_status open_model(choir__export *e, const choir__export_request *r)
{
    choir_status status = choir__saved_open(r->path, NULL, 42, &e->model);
    if (status == CHOIR_OK && r->adapter && e->model.lora)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s has adapters already: --adapter is for a model without them", r->path);
    if (status == CHOIR_OK && r->adapter)
        status = choir__saved_adapt(&e->model, r->adapter);
    if (status == CHOIR_OK)
        status = find_files(e, r);
    if (status == CHOIR_OK && e->model.lora)
        status = hash_base(e);
    return status;
}

/* --- its folder --- */

struct filling {
    const choir__export *e;
    const choir__export_format *format;
};

static choir_status fill(const char *folder, void *arg)
{
    const struct filling *f = arg;
    choir_status status = f->format->write(f->e, folder);
    if (status == CHOIR_OK)
        status = choir__export_card(f->e, f->format, folder);
    return status == CHOIR_OK ? choir__sync_path(folder) : status;
}

choir_status choir__export_model(const choir__export_request *r)
{
    choir__export e = {.dtype = dtype_of(r->dtype), .type = r->dtype};
    const choir__export_format *format = format_of(r->format);
    choir_status status = choir__folder_is_free(r->to);
    if (status != CHOIR_OK)
        return status;
    status = open_model(&e, r);
    if (status == CHOIR_OK)
        status = check(&e, format, r->path);
    if (status == CHOIR_OK)
        status = choir__folder_make(r->to, fill, &(struct filling){&e, format});
    choir__saved_close(&e.model);
    choir__unpacked_remove(&e.unpacked);
    json_decref(e.record);
    free(e.from);
    free(e.base);
    return status;
}
