/* Which layers get adapters, and where they are: for loading and saving them. */
#ifndef CHOIR_NN_LORA_H
#define CHOIR_NN_LORA_H

#include <choir/lora.h>
#include "nn/linear.h"

/* The choice of a choir_lora: linear layers, and modules that are trained whole, in order of
 * registration. */
typedef struct choir__lora_choice {
    choir__linear **layers;
    int layer_count;
    choir_module **whole;
    int whole_count;
} choir__lora_choice;

/* Chooses by the options' names. The caller frees both lists also after an error. Error:
 * argument. */
choir_status choir__lora_choose(
    choir_module *module, const choir_lora_opts *opts, choir__lora_choice *choice);
void choir__lora_choice_free(choir__lora_choice *choice);

/* Returns whether a layer of the module has an adapter. */
bool choir__has_adapters(choir_module *module);

#endif
