/* The registry of models. */
#include "nn/models/models.h"

#include <stdio.h>
#include <string.h>

#include "base/options.h"
#include "tensor/tensor.h"

const choir__model_spec *const choir__models[] = {
    &choir__model_toy,
    &choir__model_mlp,
    &choir__model_cnn,
    &choir__model_gpt2,
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

choir_tensor *choir__model_loss(
    const choir__model_info *info, choir_tensor *out, choir_tensor *y)
{
    return info->task == CHOIR__REGRESSION ? choir_mse_loss(out, y)
                                           : choir_cross_entropy(out, y);
}
