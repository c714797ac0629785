/* Layers of Llama and its relatives that llama.c and llama_attention.c share. */
#ifndef CHOIR_LLAMA_LAYERS_H
#define CHOIR_LLAMA_LAYERS_H

#include "nn/models/llama.h"

/* Return whether layers of a kind have the window. */
bool choir__llama_has_window(char kind);

choir_module *choir__llama_linear(choir_scope *run, int64_t in, int64_t out, bool bias);
choir_module *choir__llama_norm(
    choir_scope *run, const choir__llama_sizes *sizes, int64_t width);

/* Attention of a layer of that kind. Forward: x (B, T, C), the table of rotary positions, and
 * perhaps a bias of the scores -> (B, T, C). */
choir_module *choir__llama_attention(
    choir_scope *run, const choir__llama_sizes *sizes, char kind);

#endif
