/* The tree reduction by an algorithm that adds in another order (ring, double_tree, native) or
 * has no such call: each rank adds its own nodes, then an all-reduce adds the results. */
#include "comm/tree_by_name.h"

#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"

bool choir__tree_by_name(const choir__call *call)
{
    return call->stamp.kind == CHOIR__TREE_REDUCE &&
           choir__algorithm_sums((choir__algorithm)call->stamp.algorithm) !=
               CHOIR__SUMS_OF_TREE;
}

/* Adds this rank's nodes into the first. A rank without micro-batches contributes zero. */
static choir_status fold(choir__engine *engine, const choir__call *call)
{
    int64_t lo, hi, count = (int64_t)call->stamp.count;
    choir__node nodes[CHOIR__MAX_NODES];
    const char *from[CHOIR__MAX_NODES];
    char *to[] = {call->out};
    choir__tree_run(call->stamp.leaves, engine->rank, engine->world, &lo, &hi);
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
    sum.stamp.leaves = 0; /* layout still distinguishes scale and stride */
    choir_status status = fold(engine, call);
    if (status == CHOIR_OK)
        status = engine->ops->run(engine, &sum);
    if (status == CHOIR_OK && call->scale != 1)
        choir__arith_find(CHOIR_F32, CHOIR_SUM)
            ->rescale(call->out, (int64_t)call->stamp.count, (double)call->scale, 1);
    return status;
}
