/* The gradients' tree over micro-batches.
 *
 * Engines run it as one call, in the fixed tree. An algorithm that adds in another order (ring,
 * double_tree, native) and one that has no such call is taken at its word: each rank adds its
 * own nodes, and what is left is an all-reduce. */
#include <stdlib.h>
#include <string.h>

#include "comm/issue.h"
#include "comm/reduce.h"

static uint32_t digest(const choir__tree_reduce *args)
{
    uint32_t scale;
    memcpy(&scale, &args->scale, sizeof scale);
    uint64_t h = 0, parts[] = {args->node_stride, scale};
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        h = (h ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
    return (uint32_t)h;
}

choir_status choir__group_tree_reduce(choir_group *group, const choir__tree_reduce *args)
{
    const choir__call call = {.stamp = {.count = (uint64_t)args->count,
                                  .kind = CHOIR__TREE_REDUCE,
                                  .dtype = CHOIR_F32,
                                  .op = CHOIR_SUM,
                                  .algorithm = (uint8_t)args->algorithm,
                                  .root = (int32_t)args->leaves,
                                  .layout = digest(args)},
        .in = args->nodes,
        .out = args->nodes,
        .node_stride = args->node_stride,
        .scale = args->scale};
    choir_work work;
    return choir__group_issue(group, &call, &work);
}

bool choir__tree_by_name(const choir__call *call)
{
    switch ((choir__algorithm)call->stamp.algorithm) {
    case CHOIR__BINOMIAL:
    case CHOIR__HALVING:
    case CHOIR__RING:
    case CHOIR__DOUBLE_TREE:
    case CHOIR__NATIVE: return call->stamp.kind == CHOIR__TREE_REDUCE;
    default: return false;
    }
}

/* This rank's nodes into the first. A rank without micro-batches adds nothing. */
static choir_status fold(choir__engine *engine, const choir__call *call)
{
    int64_t lo, hi, count = (int64_t)call->stamp.count;
    choir__node nodes[CHOIR__MAX_NODES];
    const char *from[CHOIR__MAX_NODES];
    char *to[] = {call->out};
    choir__tree_run(call->stamp.root, engine->rank, engine->world, &lo, &hi);
    choir__reduction r = {.arith = choir__arith_find(CHOIR_F32, CHOIR_SUM),
        .nodes = nodes,
        .from = from,
        .to = to,
        .sources = choir__tree_nodes(lo, hi, nodes),
        .outputs = 1,
        .scale = 1,
        .divisor = 1};
    if (!r.sources)
        memset(call->out, 0, (size_t)count * sizeof(float));
    if (r.sources < 2)
        return CHOIR_OK;
    char *scratch = aligned_alloc(64, CHOIR__REDUCE_SCRATCH);
    if (!scratch)
        return choir__engine_spread(
            engine, CHOIR_ERR_MEMORY, "no %d bytes to add gradients", CHOIR__REDUCE_SCRATCH);
    for (int k = 0; k < r.sources; k++)
        from[k] = (const char *)call->in + (size_t)k * call->node_stride;
    choir__reduce(&r, scratch, 0, count);
    free(scratch);
    return CHOIR_OK;
}

choir_status choir__tree_run_by_name(choir__engine *engine, const choir__call *call)
{
    choir__call sum = {.stamp = call->stamp, .in = call->out, .out = call->out};
    sum.stamp.kind = CHOIR__ALL_REDUCE;
    sum.stamp.root = 0; /* layout still tells scale and stride apart */
    choir_status status = fold(engine, call);
    if (status == CHOIR_OK)
        status = engine->ops->run(engine, &sum);
    if (status == CHOIR_OK && call->scale != 1)
        choir__arith_find(CHOIR_F32, CHOIR_SUM)
            ->rescale(call->out, (int64_t)call->stamp.count, (double)call->scale, 1);
    return status;
}
