/* Which algorithm computes a convolution: a function of its shape and dtype and of the class of
 * bits alone, the same in all passes, so that no processor and no measurement changes a bit. */
#ifndef CHOIR_PRODUCT_CONV_ALGORITHM_H
#define CHOIR_PRODUCT_CONV_ALGORITHM_H

#include "device/cpu/multiplier.h"
#include "device/cpu/product/chain.h"
#include "device/kernels.h"

typedef enum choir__conv_algorithm {
    CHOIR__BY_WINDOWS,  /* a product a group, one of whose operands is windows (windows.h) */
    CHOIR__BY_CHANNELS, /* one channel a group, in one chain, by vectors of channels
                           (depthwise.h) */
    CHOIR__BY_QUADS,    /* Winograd's (winograd.h) */
    CHOIR__CONV_ALGORITHMS
} choir__conv_algorithm;

/* Quads take whole vectors of channels on every processor. With fewer pixels, transforms of the
 * weights would cost what the products save. */
static inline bool choir__takes_quads(const choir__conv_shape *s)
{
    enum { CHANNELS = 16, LEAST_PIXELS = 64 };
    return s->groups == 1 && s->kh == 3 && s->kw == 3 && s->stride_h == 1 && s->stride_w == 1 &&
           s->dilation_h == 1 && s->dilation_w == 1 && s->pad_h <= 2 && s->pad_w <= 2 &&
           s->c % CHANNELS == 0 && s->o % CHANNELS == 0 && s->oh * s->ow >= LEAST_PIXELS;
}

static inline choir__conv_algorithm choir__conv_algorithm_of(const choir__k_conv *k)
{
    const choir__conv_shape *s = &k->s;
    const bool in_pairs = k->dtype == CHOIR_BF16 && choir__cpu_multiplies() == CHOIR__BY_AMX;
    if (k->dtype == CHOIR_F64 || in_pairs)
        return CHOIR__BY_WINDOWS;
    if (s->groups == s->c && s->groups == s->o && s->groups > 1 &&
        s->kh * s->kw <= CHOIR__CHAIN)
        return CHOIR__BY_CHANNELS;
    return choir__takes_quads(s) ? CHOIR__BY_QUADS : CHOIR__BY_WINDOWS;
}

/* Products of a quad, and the most quads whose weights' gradients are one product. */
enum { CHOIR__QUAD_ELEMENTS = 16, CHOIR__QUADS_TOGETHER = CHOIR__CHAIN };

/* Returns the most nodes of the fixed tree over these products that wait for others, with the
 * one that is computed. */
static inline int choir__quads_nodes(int64_t quads)
{
    int nodes = 1;
    for (int64_t left = (quads - 1) / CHOIR__QUADS_TOGETHER + 1; left > 1; left /= 2)
        nodes++;
    return nodes;
}

#endif
