/* The registry of models. */
#include "nn/models/models.h"

#include "base/named.h"
#include "base/options.h"

static const choir__model_spec *const models[] = {
    &choir__model_toy,
    &choir__model_mlp,
    &choir__model_cnn,
    &choir__model_lenet,
    &choir__model_resnet18,
    &choir__model_resnet34,
    &choir__model_resnet50,
    &choir__model_resnet101,
    &choir__model_resnet152,
    &choir__model_alexnet,
    &choir__model_gpt2,
    &choir__model_llama,
    &choir__model_mistral,
    &choir__model_qwen2,
    &choir__model_qwen3,
    &choir__model_gemma,
    &choir__model_gemma2,
    &choir__model_gemma3,
    &choir__model_phi3,
    &choir__model_smollm3,
    &choir__model_donut,
    &choir__model_lstm,
    &choir__model_bert,
    &choir__model_roberta,
    &choir__model_xlm_roberta,
    &choir__model_camembert,
    &choir__model_distilbert,
    &choir__model_vit,
};

static const choir__name_table names = CHOIR__NAME_TABLE_OF_POINTERS(models);

const choir__model_spec *choir__model_at(size_t index)
{
    return index < CHOIR_COUNT(models) ? models[index] : NULL;
}

const char *choir_model_name(int index, const char **help)
{
    const choir__model_spec *spec = index < 0 ? NULL : choir__model_at((size_t)index);
    if (spec && help)
        *help = spec->help;
    return spec ? spec->name : NULL;
}

choir_status choir__model_find(const char *text, const choir__model_spec **spec)
{
    int at;
    choir_status status = choir__options_find(text, &names, "model", &at);
    if (status != CHOIR_OK)
        return status;
    *spec = models[at];
    return CHOIR_OK;
}
