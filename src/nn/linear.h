/* Linear layers, as strategies and adapters see them. Both kinds are one struct: PyTorch's,
 * with a weight of (out, in), and "Conv1D" of GPT-2's files, with one of (in, out). */
#ifndef CHOIR_LINEAR_H
#define CHOIR_LINEAR_H

#include "nn/module.h"

/* A low-rank adapter, scale B A, of a layer's weight; see choir/lora.h. The columns of A and
 * the rows of B are the layer's inputs and outputs, whichever way its weight lies. */
typedef struct choir__adapter {
    choir_tensor *a, *b; /* (r, in), (out, r); NULL: the layer has no adapter */
    float scale, dropout;
    double alpha; /* divided by r, or the root of r, it is the scale */
    bool rslora;
    const char *dropout_name; /* key of dropout's random numbers */
} choir__adapter;

typedef struct choir__linear {
    choir_module base;
    choir_tensor *weight, *bias; /* (out, in), or (in, out); (out), or NULL */
    choir__adapter adapter;
} choir__linear;

/* Returns the module as a linear layer, or NULL if it is another one. *in_out: its weight is
 * (in, out). */
choir__linear *choir__linear_of_module(choir_module *module, bool *in_out);

static inline int64_t choir__linear_in(const choir__linear *l, bool in_out)
{
    return choir__param_values(l->weight->param).dim[!in_out];
}

static inline int64_t choir__linear_out(const choir__linear *l, bool in_out)
{
    return choir__param_values(l->weight->param).dim[in_out];
}

/* Returns y + scale B A dropout(x), for y, the layer's own result of x (lora.c). */
choir_tensor *choir__adapted(const choir__linear *l, choir_tensor *x, choir_tensor *y);

#endif
