/* A published training of a decoder-only transformer, and its step as this project's replays
 * take it. */
#ifndef PUBLISHED_SETUP_H
#define PUBLISHED_SETUP_H

#include "forecast/replay.h"

/* Layers, width, heads of queries and of keys, width of the feed-forward layer, tokens. */
typedef struct model {
    const char *name;
    double layers, width, heads, kv_heads, ff, vocab;
    bool gated; /* three products in the feed-forward layer (Llama), else two */
} model;

typedef enum recompute { KEEP, HALF_OF_PRODUCTS, ALL } recompute;

typedef struct setup {
    const char *source;
    const model *model;
    int gpus, tensor, pipeline, context, virtual; /* virtual: chunks per stage */
    int sequence, global_batch, micro_batch;      /* tokens; sequences */
    bool fsdp;          /* weights sharded; else a distributed optimizer */
    int gradient_bytes; /* per element on the network */
    recompute recompute;
    bool eight_bits;      /* products of FP8 */
    bool tensor_overlaps; /* collectives of tensor parallelism beside products */
    double memory_tb_s;   /* the cards' memory; 0: as in the data sheet */
    double tokens_s;      /* published: per second and GPU */
} setup;

/* Writes the step of a set-up. Returns its devices' ranks. */
void setup_step(const setup *s, choir__step *step);

/* Returns the parameters, and the FLOPs of a token's training without recomputation. */
double model_parameters(const model *m);
double model_flops(const model *m, int sequence);

#endif
