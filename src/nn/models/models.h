/* The registry of models by name. */
#ifndef CHOIR_MODELS_H
#define CHOIR_MODELS_H

#include "nn/models/spec.h"

extern const choir__model_spec choir__model_toy, choir__model_mlp, choir__model_cnn,
    choir__model_lenet, choir__model_resnet18, choir__model_resnet34, choir__model_resnet50,
    choir__model_resnet101, choir__model_resnet152, choir__model_alexnet, choir__model_gpt2,
    choir__model_llama, choir__model_mistral, choir__model_qwen2, choir__model_qwen3,
    choir__model_gemma, choir__model_gemma2, choir__model_gemma3, choir__model_phi3,
    choir__model_smollm3, choir__model_donut, choir__model_lstm, choir__model_bert,
    choir__model_roberta, choir__model_distilbert, choir__model_vit, choir__model_xlm_roberta,
    choir__model_camembert;

/* Returns the model at an index of the registry, or NULL after the last one. */
const choir__model_spec *choir__model_at(size_t index);

/* Finds the model that the text before the colon names. Error: argument, which lists the names.
 */
choir_status choir__model_find(const char *text, const choir__model_spec **spec);

#endif
