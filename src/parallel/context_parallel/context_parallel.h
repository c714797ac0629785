/* Inside context parallelism: the wrapper and the strategy (context_parallel.c), attention by
 * heads (heads.c) and by chunks of keys (keys.c). */
#ifndef CHOIR_CONTEXT_PARALLEL_INTERNAL_H
#define CHOIR_CONTEXT_PARALLEL_INTERNAL_H

#include <string.h>

#include <choir/context_parallel.h>
#include "nn/module.h"
#include "tensor/sequence.h"

typedef struct choir__cp {
    choir_module base;
    choir_module *module;
    choir__strategy strategy;
    choir_group *group; /* NULL: one device */
    int rank, world;
    int64_t chunks;
    choir_cp_exchange exchange;
    bool cuts_evaluation; /* forwards in evaluation cut sequences, too */
} choir__cp;

/* Makes forwards in evaluation cut sequences as in training, or not, in every such module of a
 * tree. */
void choir__cp_cut_evaluation(choir_module *module, bool cut);
/* Returns the strategy of a tree's module whose ranks share the sequences; NULL: none do. */
choir__strategy *choir__cp_shares(choir_module *module);

/* A call of attention: the strategy's ranks, and where the call runs. */
typedef struct choir__cp_call {
    const choir__cp *cp;
    choir_scope *scope; /* for tensors that end with the call */
    choir_device *device;
    const choir__k_attention *k; /* this rank's tokens */
} choir__cp_call;

static inline int64_t choir__cp_own(const choir__cp *cp)
{
    return cp->chunks / cp->world;
}

/* Returns whether a rank's leaves complete several nodes of the tree: they are no power of two.
 */
static inline bool choir__cp_joins(const choir__cp *cp)
{
    int64_t own = choir__cp_own(cp);
    return (own & (own - 1)) != 0;
}

void choir__cp_heads_forward(const choir__cp_call *call);
void choir__cp_heads_backward(const choir__cp_call *call);
void choir__cp_keys_forward(const choir__cp_call *call);
void choir__cp_keys_backward(const choir__cp_call *call);

/* Returns memory as a tensor of this shape and these strides. */
static inline choir_tensor *choir__cp_view(
    const choir__cp_call *call, void *p, choir_shape shape, const int64_t *stride)
{
    choir_tensor *t = choir__tensor_wrap(call->scope, call->device, call->k->dtype, shape, p);
    memcpy(t->stride, stride, (size_t)shape.ndim * sizeof *stride);
    return t;
}

#endif
