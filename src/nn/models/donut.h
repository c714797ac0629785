/* The parts of Donut: the Swin encoder (Liu et al., 2021), by which an image becomes a
 * sequence, and BART's decoder in MBart's form (Liu et al., 2020), from tokens and an encoder's
 * states to logits. */
#ifndef CHOIR_DONUT_H
#define CHOIR_DONUT_H

#include <choir/nn.h>

#include "nn/models/published.h"

extern const choir__published choir__donut_published;

/* --- the encoder --- */

enum { CHOIR__SWIN_STAGES = 4, CHOIR__SWIN_BLOCKS = 64 };

typedef struct choir__swin_sizes {
    int64_t height, width, channels, patch, window, embed;
    int stages;
    int64_t depth[CHOIR__SWIN_STAGES], heads[CHOIR__SWIN_STAGES];
    double dropout, eps; /* eps of the norms in blocks */
} choir__swin_sizes;

/* Returns the reason why the sizes are inconsistent, or NULL if they are consistent. */
const char *choir__swin_wrong(const choir__swin_sizes *sizes);
/* Returns what both sides of an image must be multiples of, in pixels. */
int64_t choir__swin_side(const choir__swin_sizes *sizes);

/* Creates the encoder. Forward: x (B, channels, height, width) -> (B, T, choir__swin_out), T =
 * H W / (patch 2^(stages-1))^2. */
choir_module *choir__swin_new(choir_scope *run, const choir__swin_sizes *sizes);
int64_t choir__swin_out(const choir__swin_sizes *sizes);

/* --- the decoder --- */

enum {
    CHOIR__MBART_LAYERS = 64,
    CHOIR__MBART_OFFSET = 2 /* offset of positions, as published */
};

typedef struct choir__mbart_sizes {
    int64_t layers, heads, width, hidden, context, vocab;
    int64_t pad; /* the token of padding, whose embedding is not trained */
    double dropout;
} choir__mbart_sizes;

/* Creates the decoder. Forward: ids (B, T) i64, states (B, S, width) -> (B, T, vocab). */
choir_module *choir__mbart_new(choir_scope *run, const choir__mbart_sizes *sizes);

#endif
