/* The registry of models. */
#include "nn/models/models.h"

#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "tensor/launch.h"
#include "tensor/scope.h"

const choir__model_spec *const choir__models[] = {
    &choir__model_toy,
    &choir__model_mlp,
    &choir__model_cnn,
    &choir__model_resnet18,
    &choir__model_resnet34,
    &choir__model_resnet50,
    &choir__model_resnet101,
    &choir__model_resnet152,
    &choir__model_alexnet,
    &choir__model_gpt2,
    &choir__model_llama,
    &choir__model_mistral,
    &choir__model_donut,
    &choir__model_lstm,
    &choir__model_bert,
    NULL,
};

choir_status choir__model_find(const char *text, const choir__model_spec **spec)
{
    char name[64], list[256] = "";
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; choir__models[i]; i++) {
        if (!strcmp(choir__models[i]->name, name)) {
            *spec = choir__models[i];
            return CHOIR_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
            choir__models[i]->name);
    }
    return choir__error(CHOIR_ERR_ARGUMENT, "there is no model '%s'; there are %s", name, list);
}

/* Each token is predicted from those before it: start, and the target (B, T) but its last. */
static choir_tensor *moved_on(choir_tensor *target, int64_t start)
{
    int64_t b = choir_tensor_size(target, 0), t = choir_tensor_size(target, 1);
    choir_tensor *parts[2] = {
        choir_full(choir_tensor_scope(target), CHOIR_I64, choir_dims(b, 1), (double)start),
        choir_narrow(target, 1, 0, t - 1)};
    return choir_cat(parts, 2, 1);
}

int choir__model_inputs(
    const choir__model_info *info, choir_tensor *x, choir_tensor *y, choir_tensor *in[2])
{
    in[0] = x;
    if (info->task != CHOIR__IMAGE_TO_TEXT)
        return 1;
    in[1] = moved_on(y, info->start);
    return 2;
}

choir_tensor *choir__model_forward(
    const choir__model_info *info, choir_module *module, choir_tensor *x, choir_tensor *y)
{
    choir_tensor *in[2];
    return choir__model_inputs(info, x, y, in) == 2 ? choir_forward(module, in[0], in[1])
                                                    : choir_forward(module, in[0]);
}

choir_status choir__model_classes(const char *model, choir__model_info *info, int64_t classes)
{
    if (classes && info->classes > classes)
        return choir__error(CHOIR_ERR_ARGUMENT, "model %s has %lld classes, the data %lld",
            model, (long long)classes, (long long)info->classes);
    if (classes)
        info->classes = classes;
    if (!info->classes)
        info->classes = 10;
    info->task = CHOIR__CLASSIFICATION;
    info->items = 1;
    return CHOIR_OK;
}

choir_status choir__model_images(
    const char *model, choir__model_info *info, int64_t channels, int64_t size, int64_t least)
{
    if (!info->input.ndim)
        info->input = choir_dims(channels, size, size);
    if (info->input.ndim == 3 && info->input.dim[1] >= least && info->input.dim[2] >= least)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "model %s wants images of at least %lld x %lld, not samples of %s", model,
        (long long)least, (long long)least, choir__shape_text(info->input));
}

choir_tensor *choir__model_loss(
    const choir__model_info *info, choir_tensor *out, choir_tensor *y)
{
    choir_cross_entropy_opts opts = choir_cross_entropy_defaults();
    opts.ignore_index = info->pad;
    if (info->task == CHOIR__IMAGE_TO_TEXT)
        return choir_cross_entropy_with(out, y, opts);
    return info->task == CHOIR__REGRESSION ? choir_mse_loss(out, y)
                                           : choir_cross_entropy(out, y);
}

choir_tensor *choir__model_positions(choir_scope *scope, int64_t t)
{
    int64_t *ids = choir__arena_get(&scope->arena, (size_t)t * sizeof *ids);
    for (int64_t i = 0; i < t; i++)
        ids[i] = i;
    choir_tensor *x = choir__tensor_new(scope, scope->device, CHOIR_I64, choir_dims(t));
    if (!x->poisoned)
        choir__launch_upload(scope->device, choir__data(x), ids, (size_t)t * sizeof *ids);
    return x;
}
