/* A model by name or from a published folder, for programs: what the command does in steps. */
#include <choir/models.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/published.h"
#include "checkpoint/shards.h"
#include "nn/models/models.h"
#include "tensor/scope.h"

static char *joined(char *a, char *b)
{
    char *both = choir__format("%s%s", a ? a : "", b ? b : "");
    free(a);
    free(b);
    return both;
}

static choir_status build(choir_scope *run, const char *text, const char *weights,
    choir_module **module, char **notes)
{
    const choir__model_spec *spec;
    choir__model_info info = {0};
    choir_status status = choir__model_find(text, &spec);
    if (status == CHOIR_OK)
        status = spec->describe(text, &info);
    if (status == CHOIR_OK)
        status = spec->build(info.config, run, &info, module);
    if (status != CHOIR_OK || !weights)
        return status;
    choir__published_opts opts = {
        .names = spec->published, .model = info.config, .fresh = true};
    return choir__published_load(*module, weights, opts, notes);
}

static choir_tensor *nothing(choir_module *self, choir_tensor *const *in, int count)
{
    (void)count;
    return choir__poison(choir_tensor_scope(in[0]), CHOIR_ERR_STATE,
        "a model that could not be made has no output; see choir_scope_status of its run (%s)",
        self->type->name);
}

static const choir_module_class failed_class = {"model", sizeof(choir_module), nothing};

choir_module *choir_model(choir_scope *run, const char *model, char **notes)
{
    char *text = NULL, *of_config = NULL, *of_weights = NULL;
    choir_module *module = NULL;
    choir_status status = CHOIR_OK;
    const char *weights = NULL;
    if (choir__config_is_path(model)) {
        status = choir__config_read(model, &text, &of_config);
        weights = status == CHOIR_OK && choir__shards_present(model) ? model : NULL;
    }
    if (status == CHOIR_OK)
        status = build(run, text ? text : model, weights, &module, &of_weights);
    char *all = joined(of_config, of_weights);
    if (notes)
        *notes = all;
    else
        free(all);
    free(text);
    if (status == CHOIR_OK)
        return module;
    choir__scope_fail(run, status);
    return choir_module_new(run, &failed_class);
}
