/* A model by name or from a published folder, for programs, in one call. */
#include <choir/models.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/floats.h"
#include "checkpoint/folder.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/gguf/model.h"
#include "checkpoint/weights/published.h"
#include "checkpoint/shards.h"
#include "checkpoint/weights/weight_files.h"
#include "data/dataset.h"
#include "data/open/reader.h"
#include "nn/models/models.h"
#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/scope.h"

/* Reads the description of a model in a folder or a file, before the options behind it. */
static choir_status read_config(const char *model, char **text, char **notes)
{
    char *path = choir__config_path(model), *json = NULL;
    choir_status status = CHOIR_OK;
    if (choir__is_gguf_file(path)) {
        status = choir__gguf_read_config(path, &json);
        if (status == CHOIR_OK)
            status = choir__config_read_text(model, json, text, notes);
    } else {
        status = choir__config_read(model, text, notes);
    }
    free(json);
    free(path);
    return status;
}

/* Joins two lists of notes, one per line, and frees them. */
static char *joined(char *a, char *b)
{
    bool both_speak = a && *a && b && *b;
    char *both = choir__format("%s%s%s", a ? a : "", both_speak ? "\n" : "", b ? b : "");
    free(a);
    free(b);
    return both;
}

choir_status choir_model_describe(const char *model, choir_model_info *info)
{
    if (!model)
        return choir__missing(__func__, "model");
    const choir__model_spec *spec;
    choir_status status = choir__model_find(model, &spec);
    return status == CHOIR_OK ? spec->describe(model, info) : status;
}

static choir_tensor *nothing(choir_module *self, choir_tensor *const *in, int count)
{
    (void)count;
    return choir__poison(choir_tensor_scope(in[0]), CHOIR_ERR_STATE,
        "a model that could not be made has no output; see choir_scope_status of its run (%s)",
        self->type->name);
}

static const choir_module_class failed_class = {"model", sizeof(choir_module), nothing, 0};

static choir_module *failed(choir_scope *run, choir_status status)
{
    choir__scope_fail(run, status);
    return choir_module_new(run, &failed_class);
}

choir_module *choir_model_build(choir_scope *run, const choir_model_info *info)
{
    CHOIR__DEFAULT_FLOATS;
    run = choir__open_scope(run, __func__);
    const choir__model_spec *spec;
    if (!info)
        return failed(run, choir__missing(__func__, "model info"));
    choir_status status = choir__model_find(info->config, &spec);
    if (status != CHOIR_OK)
        return failed(run, status);
    choir_module *module = spec->build(info->config, run, info);
    status = module ? choir__scope_status(run) : CHOIR_ERR_ARGUMENT;
    return status == CHOIR_OK ? module : failed(run, status);
}

choir_status choir_model_load_weights(choir_module *module, const choir_model_info *info,
    const char *path, choir_head head, char **notes)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!info)
        return choir__missing(__func__, "model info");
    if (!path)
        return choir__missing(__func__, "path");
    const choir__model_spec *spec;
    choir_status status = choir__model_find(info->config, &spec);
    choir__published_opts opts = {.model = info->config, .head = head};
    if (status != CHOIR_OK)
        return status;
    opts.names = spec->published;
    return choir__published_load(module, path, opts, notes);
}

bool choir_model_is_path(const char *model)
{
    if (choir__lacks(model, __func__, "model"))
        return false;
    return choir__config_is_path(model);
}

bool choir_model_has_weights(const char *folder)
{
    return !choir__lacks(folder, __func__, "folder") && choir__weights_present(folder);
}

char *choir_model_weights_note(const char *folder)
{
    return choir__lacks(folder, __func__, "folder") || choir__weights_present(folder)
               ? NULL
               : choir__format(
                     "%s has no weights: all parameters start from random values", folder);
}

choir_status choir_model_check_weights(const char *path)
{
    return path ? choir__file_shards_check(path) : choir__missing(__func__, "path");
}

choir_status choir_model_read_config(const char *path, char **model, char **notes)
{
    if (!path || !model || !notes)
        return choir__missing(__func__, !path ? "path" : model ? "notes" : "model");
    return read_config(path, model, notes);
}

choir_status choir_model_class_names(const char *path, choir_class_names *names)
{
    if (!path || !names)
        return choir__missing(__func__, path ? "names" : "path");
    return choir__config_classes(path, names);
}

char *choir_model_path(const char *model)
{
    return choir__lacks(model, __func__, "model") ? NULL : choir__config_path(model);
}

choir_head choir_model_head(const char *model)
{
    if (choir__lacks(model, __func__, "model"))
        return CHOIR_HEAD_NEW_IF_MISSING;
    return strstr(model, ":classes=") || strstr(model, ",classes=") ? CHOIR_HEAD_REPLACED
                                                                    : CHOIR_HEAD_NEW_IF_MISSING;
}

choir_model_opts choir_model_defaults(void)
{
    return (choir_model_opts){.classes = 0};
}

/* Describes the model in *info, and finds the weights that it starts from; the caller frees
 * *weights and *notes. */
static choir_status plan(const char *model, const choir_model_opts *opts,
    choir_model_info *info, char **weights, char **notes)
{
    char *text = NULL, *path = choir__config_path(model);
    choir_status status = CHOIR_OK;
    bool is_path = choir__config_is_path(model);
    if (is_path)
        status = read_config(model, &text, notes);
    else
        text = choir__strdup(model);
    if (opts->classes && status == CHOIR_OK) {
        char *classes = choir__format(
            "%s%sclasses=%lld", text, strchr(text, ':') ? "," : ":", (long long)opts->classes);
        free(text);
        text = classes;
    }
    if (status == CHOIR_OK)
        status = choir_model_describe(text, info);
    if (opts->weights)
        *weights = choir__strdup(opts->weights);
    else if (is_path && (choir__weights_present(path) || choir__is_gguf_file(path)))
        *weights = choir__strdup(path);
    else if (is_path && choir__is_folder(path))
        *notes = joined(*notes, choir_model_weights_note(path));
    free(text);
    free(path);
    return status;
}

choir_module *choir_model_with(choir_scope *run, const char *model, choir_model_opts opts)
{
    CHOIR__DEFAULT_FLOATS;
    run = choir__open_scope(run, __func__);
    if (opts.notes)
        *opts.notes = NULL;
    if (!model)
        return failed(run, choir__missing(__func__, "model"));
    choir_model_info info = {0};
    choir_module *module = NULL;
    char *weights = NULL, *of_config = NULL, *of_weights = NULL;
    choir_head head = opts.strict    ? CHOIR_HEAD_KEPT
                      : opts.classes ? CHOIR_HEAD_REPLACED
                                     : choir_model_head(model);
    choir_status status = plan(model, &opts, &info, &weights, &of_config);
    if (status == CHOIR_OK) {
        module = choir_model_build(run, &info);
        status = choir__scope_status(run);
    }
    if (status == CHOIR_OK && weights)
        status = choir_model_load_weights(module, &info, weights, head, &of_weights);
    char *all = joined(of_config, of_weights);
    if (opts.notes)
        *opts.notes = all;
    else
        free(all);
    free(weights);
    return status == CHOIR_OK ? module : failed(run, status);
}

choir_module *choir_model(choir_scope *run, const char *model, char **notes)
{
    CHOIR__DEFAULT_FLOATS;
    choir_model_opts opts = choir_model_defaults();
    opts.notes = notes;
    return choir_model_with(run, model, opts);
}

/* --- data ---
 *
 * Data for a model, and the model for the data: each says what the other leaves open. */

static bool names_image(const char *model)
{
    const char *options = strchr(model, ':');
    return options && (strstr(options, ":image") || strstr(options, ",image"));
}

/* Classifiers of images take images of any size, unless the model has one of its own, as those
 * for photographs do, or names one. */
static bool takes_any_size(const char *model, const choir_model_info *info)
{
    return info->task == CHOIR_CLASSIFICATION && !info->vocab && !info->random &&
           !(info->input.ndim == 3 && (info->input.dim[0] == 3 || names_image(model)));
}

static choir_status open_both(
    const char *path, choir_data_opts opts, const choir_model_info *wanted, choir_data *data)
{
    choir_status status =
        choir_dataset_open(path, CHOIR_TRAIN, opts, wanted, &data->tokenizer, &data->train);
    if (status == CHOIR_OK)
        status = choir_dataset_open(
            path, CHOIR_VALIDATION, opts, wanted, &data->tokenizer, &data->validation);
    return status;
}

/* Samples of another folder are read with the brightness of these: a prediction follows from
 * the image and the model alone. An export tells other programs the size. */
static void note_images(const choir_data *data, choir_model_info *info)
{
    choir__idx_brightness(data->validation, &info->pixel_mean, &info->pixel_deviation);
    info->pixel_resize = choir__folder_resize(data->validation);
    if (!info->pixel_resize)
        info->pixel_resize = choir__shards_resize(data->validation);
}

/* Fills in the model's description from the data. */
static void learn(const choir_data *data, choir_model_info *info)
{
    if (info->task != CHOIR_LANGUAGE && info->vocab) { /* the model names its classes */
        *info = (choir_model_info){.vocab = choir_tokenizer_size(data->tokenizer)};
        return;
    }
    info->classes = choir__max(data->train->classes, data->validation->classes);
    info->padded |= choir_dataset_ignores(data->train);
    if (info->task == CHOIR_CLASSIFICATION)
        *info = (choir_model_info){.input = data->train->x_shape, .classes = info->classes};
    if (info->task == CHOIR_IMAGE_TO_TEXT) {
        info->classes = choir_tokenizer_size(data->tokenizer);
        info->pad = choir_tokenizer_id(data->tokenizer, "<pad>");
        info->start = choir_tokenizer_id(data->tokenizer, "<s>");
    }
}

choir_status choir_model_data(const char *model, const char *path, choir_data_opts opts,
    choir_model_info *info, choir_data *data)
{
    if (!model)
        return choir__missing(__func__, "model");
    if (!info)
        return choir__missing(__func__, "model info");
    if (!data)
        return choir__missing(__func__, "data");
    *info = (choir_model_info){.random = path && choir__data_is_random(path)};
    *data = (choir_data){.tokenizer = opts.tokenizer};
    choir_status status = choir_model_describe(model, info);
    choir_model_info wanted = *info;
    if (!info->random)
        wanted.classes = 0;
    if (takes_any_size(model, info))
        wanted.input = (choir_shape){0};
    if (status == CHOIR_OK)
        status = open_both(path, opts, &wanted, data);
    if (status == CHOIR_OK && !info->random)
        learn(data, info);
    if (status == CHOIR_OK)
        status = choir_model_describe(model, info);
    if (status == CHOIR_OK)
        note_images(data, info);
    if (status == CHOIR_OK && info->task != CHOIR_LANGUAGE && info->vocab)
        status = choir_dataset_fits(data->train, path, info);
    if (status != CHOIR_OK)
        choir_data_free(data);
    return status;
}
