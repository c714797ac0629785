/* A model by name or from a published folder, for programs, in one call. */
#include <choir/models.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/published.h"
#include "checkpoint/shards.h"
#include "checkpoint/weight_files.h"
#include "nn/models/models.h"
#include "tensor/scope.h"

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
    const choir__model_spec *spec;
    choir_model_info own = *info;
    choir_module *module = NULL;
    choir_status status = choir__model_find(info->config, &spec);
    if (status == CHOIR_OK)
        status = spec->build(info->config, run, &own, &module);
    return status == CHOIR_OK ? module : failed(run, status);
}

choir_status choir_model_load_weights(choir_module *module, const choir_model_info *info,
    const char *path, bool fresh, char **notes)
{
    const choir__model_spec *spec;
    choir_status status = choir__model_find(info->config, &spec);
    choir__published_opts opts = {.model = info->config, .fresh = fresh};
    if (status != CHOIR_OK)
        return status;
    opts.names = spec->published;
    return choir__published_load(module, path, opts, notes);
}

bool choir_model_is_path(const char *model)
{
    return choir__config_is_path(model);
}

bool choir_model_has_weights(const char *folder)
{
    return choir__weights_present(folder);
}

choir_status choir_model_check_weights(const char *path)
{
    return choir__shards_check(path);
}

choir_status choir_model_read_config(const char *path, char **model, char **notes)
{
    return choir__config_read(path, model, notes);
}

static choir_status make(choir_scope *run, const char *text, const char *weights,
    choir_module **module, char **notes)
{
    choir_model_info info = {0};
    choir_status status = choir_model_describe(text, &info);
    if (status != CHOIR_OK)
        return status;
    *module = choir_model_build(run, &info);
    status = choir_scope_status(run);
    return status == CHOIR_OK && weights
               ? choir_model_load_weights(*module, &info, weights, true, notes)
               : status;
}

choir_module *choir_model(choir_scope *run, const char *model, char **notes)
{
    char *text = NULL, *of_config = NULL, *of_weights = NULL;
    choir_module *module = NULL;
    choir_status status = CHOIR_OK;
    const char *weights = NULL;
    if (choir__config_is_path(model)) {
        status = choir__config_read(model, &text, &of_config);
        weights = status == CHOIR_OK && choir__weights_present(model) ? model : NULL;
    }
    if (status == CHOIR_OK)
        status = make(run, text ? text : model, weights, &module, &of_weights);
    char *all = joined(of_config, of_weights);
    if (notes)
        *notes = all;
    else
        free(all);
    free(text);
    return status == CHOIR_OK ? module : failed(run, status);
}
