/* Builds a module with its weights from a checkpoint's state.json or a published config.json.
 */
#include "job/model/saved.h"

#include <choir/hold.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "line/printed.h"
#include "line/say.h"
#include "job/document/document.h"
#include "job/model/amp.h"
#include "job/model/base.h"
#include "job/model/lora.h"
#include "job/model/text.h"
#include "job/model/unpacked.h"
#include "data/beside.h"

/* Returns whether a path is a GGUF file, or a folder with a config.json and no checkpoint of
 * Choir's. */
static bool is_published(const char *path)
{
    if (choir__is_gguf_file(path))
        return access(path, R_OK) == 0;
    return choir__folder_has(path, "config.json") &&
           !choir__folder_has(path, CHOIR__STATE_FILE) && !choir__folder_has(path, "latest");
}

static choir_status build(const char *model, choir__saved *s)
{
    choir_status status = choir_model_describe(model, &s->info);
    if (status != CHOIR_OK)
        return status;
    s->net = choir_model_build(s->run, &s->info);
    return choir_scope_status(s->run);
}

static choir_status load_published(const char *folder, choir__saved *s)
{
    char *notes = NULL;
    choir_status status =
        choir_model_load_weights(s->net, &s->info, folder, CHOIR_HEAD_KEPT, &notes);
    if (status == CHOIR_OK)
        choir__line_notes("", notes);
    free(notes);
    if (status == CHOIR_OK && choir__is_gguf_file(folder))
        return choir__unpack_tokenizer(folder, &s->tokenizer);
    return status == CHOIR_OK && choir_tokenizer_exists(folder)
               ? choir_tokenizer_load(folder, &s->tokenizer)
               : status;
}

static choir_status open_published(
    const char *folder, choir_device *device, uint64_t seed, const char *base, choir__saved *s)
{
    char *text = NULL, *notes = NULL;
    choir_status status = choir_model_read_config(folder, &text, &notes);
    if (status != CHOIR_OK)
        return status;
    choir__line_notes("", notes);
    s->seed = seed;
    s->run = choir_scope_open(device, seed);
    status = build(text, s);
    if (status == CHOIR_OK) /* before there are values, so that they are never all in f32 */
        status =
            choir__base_of_running(base, choir__is_gguf_file(folder) ? folder : NULL, s->net);
    if (status == CHOIR_OK)
        status = load_published(folder, s);
    free(notes);
    free(text);
    return status;
}

choir_status choir__saved_adapt(choir__saved *s, const char *folder)
{
    choir__adapter_file file;
    choir_status status = choir__adapter_read(folder, &file);
    if (status == CHOIR_OK)
        status = choir__lora_of_adapter(folder, &file, &s->lora);
    if (status == CHOIR_OK)
        status = choir__lora_add(s->lora, &s->info, s->net);
    if (status == CHOIR_OK)
        status = choir__adapter_load(s->net, s->info.config, folder, NULL);
    choir__adapter_free(&file);
    return status;
}

/* Opens an adapter together with its base, if that is here. */
static choir_status open_adapter(
    const char *folder, choir_device *device, uint64_t seed, const char *base, choir__saved *s)
{
    choir__adapter_file file;
    choir_status status = choir__adapter_read(folder, &file);
    if (status == CHOIR_OK && (!file.base || !is_published(file.base)))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "%s is an adapter of '%s', which is no model here: choir export BASE NEW --adapter %s "
            "--format hf makes one model of both",
            folder, file.base ? file.base : "an unknown model", folder);
    if (status == CHOIR_OK)
        status = open_published(file.base, device, seed, base, s);
    if (status == CHOIR_OK)
        status = choir__saved_adapt(s, folder);
    choir__adapter_free(&file);
    return status;
}

static char *text_in(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));
    return text ? choir__strdup(text) : NULL;
}

/* Reads what training read, and how, which validation reads alike. */
static choir_status read_job(const char *path, choir__saved *s)
{
    char *job = NULL;
    choir_status status = choir_training_job(path, &job);
    json_t *record = job ? choir__job_read_record(job) : NULL;
    const choir__job_data data = choir__job_of_record("eval", record).data;
    s->held_out = data.val_split;
    s->pack = data.pack;
    const json_t *options = json_object_get(record, "options");
    const char *amp = json_string_value(json_object_get(options, "amp"));
    s->lora = text_in(options, "lora");
    s->base = text_in(options, "base");
    s->frozen = text_in(options, "freeze");
    const choir__amp_level *level = choir__amp_find(amp);
    s->rounded = s->base || (level && level->dtype != CHOIR_F32);
    s->columns = text_in(options, "columns");
    s->data = text_in(record, "data");
    s->data_sha256 = text_in(record, "data_sha256");
    json_decref(record);
    free(job);
    return status;
}

/* Holds a checkpoint's weights in another type than f32. */
static choir_status hold_checkpoint(const char *path, const char *base, choir__saved *s)
{
    if (base && s->base && strcmp(base, s->base) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained with --base %s: its weights cannot be held as %s", path, s->base,
            base);
    if (s->base)
        return CHOIR_OK;
    const bool blocks = choir_module_held_bytes(s->net) > 0;
    choir_status status = choir__base_of_running(base, NULL, s->net);
    return blocks && status == CHOIR_ERR_STATE
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "%s was trained beside the blocks of a GGUF file: its weights cannot be "
                     "held as %s; leave out --base",
                     path, base)
               : status;
}

/* Holds the frozen weights as the training did. */
static choir_status hold_saved(const char *path, choir__saved *s)
{
    char found[PATH_MAX];
    choir_status status = choir_training_find(path, found);
    return status == CHOIR_OK ? choir__base_of_saved(s->base, found, s->net) : status;
}

static choir_status open_checkpoint(
    const char *path, choir_device *device, uint64_t seed, const char *base, choir__saved *s)
{
    choir_train_state state;
    choir_status status = choir__job_name_saves(path, choir_training_read(path, &state));
    if (status != CHOIR_OK)
        return status;
    if (!*state.model)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s is of a model of a program's own, which only that program can build", path);
    s->step = state.step;
    s->seed = state.seed;
    s->info.input = state.input;
    s->info.output = state.output;
    s->info.classes = state.classes;
    s->info.pixel_mean = state.pixel_mean;
    s->info.pixel_deviation = state.pixel_deviation;
    s->info.pixel_resize = state.pixel_resize;
    s->run = choir_scope_open(device, seed);
    status = build(state.model, s);
    if (status == CHOIR_OK)
        status = read_job(path, s);
    if (status == CHOIR_OK && s->lora)
        status = choir__lora_add(s->lora, &s->info, s->net);
    if (status == CHOIR_OK)
        status = choir__freeze_all(s->frozen, s->net);
    if (status == CHOIR_OK)
        status = hold_saved(path, s);
    if (status == CHOIR_OK)
        status = choir_training_resume(path, &(choir_training){.module = s->net}, NULL, NULL);
    if (status == CHOIR_OK)
        status = hold_checkpoint(path, base, s);
    return status == CHOIR_OK ? choir_training_tokenizer(path, &s->tokenizer) : status;
}

choir_status choir__saved_open(
    const char *path, choir_device *device, uint64_t seed, choir__saved *s)
{
    return choir__saved_open_held(path, device, seed, NULL, s);
}

/* Takes how images are read from the files beside the weights, as training did. */
static choir_status read_images(const char *path, choir__saved *s)
{
    char found[PATH_MAX], *notes = NULL;
    choir_beside *beside = NULL;
    choir_status status = CHOIR_OK;
    if (s->info.task != CHOIR_CLASSIFICATION || s->info.vocab)
        return CHOIR_OK;
    if (!is_published(path) && (status = choir_training_find(path, found)) == CHOIR_OK)
        path = found;
    if (status == CHOIR_OK)
        status = choir__beside_read(path, false, &beside);
    if (status == CHOIR_OK)
        status = choir_image_published(beside, &s->images, &notes);
    if (notes)
        choir__line_notes("", notes);
    choir_beside_free(beside);
    free(notes);
    return status;
}

choir_status choir__saved_open_held(
    const char *path, choir_device *device, uint64_t seed, const char *base, choir__saved *s)
{
    *s = (choir__saved){0};
    choir_status status = is_published(path) ? open_published(path, device, seed, base, s)
                          : choir__is_adapter(path)
                              ? open_adapter(path, device, seed, base, s)
                              : open_checkpoint(path, device, seed, base, s);
    s->images = choir_image_defaults();
    if (status == CHOIR_OK && !choir__is_adapter(path))
        status = read_images(path, s);
    return status == CHOIR_OK && choir_task_has_classes(s->info.task)
               ? choir__classes_of_saved(path, &s->classes)
               : status;
}

choir_status choir__saved_tokenizer(choir__saved *s, const char *name)
{
    if (!name)
        return CHOIR_OK;
    choir_tokenizer_free(s->tokenizer);
    s->tokenizer = NULL;
    return choir__text_is_chars(name) ? CHOIR_OK : choir_tokenizer_load(name, &s->tokenizer);
}

const char *choir__saved_class(const choir__saved *s, int64_t class, char text[24])
{
    snprintf(text, 24, "%lld", (long long)class);
    return class < s->classes.count ? s->classes.name[class] : text;
}

void choir__saved_print_class(const choir__saved *s, int64_t class)
{
    char number[24];
    choir__print_word(stdout, choir__saved_class(s, class, number), 0);
}

choir_status choir__saved_text_columns(choir__saved *s, choir_labelled_opts *opts)
{
    return choir__labelled_columns_parse(s->columns, &s->labelled, opts);
}

void choir__saved_close(choir__saved *s)
{
    choir_tokenizer_free(s->tokenizer);
    choir_class_names_free(&s->classes);
    (void)!choir_scope_close(s->run);
    free(s->lora);
    free(s->base);
    free(s->frozen);
    free(s->columns);
    free(s->data);
    free(s->data_sha256);
}
