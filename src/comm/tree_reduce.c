/* Issues the tree reduction of gradients over micro-batches. Engines run it as one call, in the
 * fixed tree; run.c handles the algorithms that cannot. */
#include <string.h>

#include "comm/issue.h"

static uint32_t digest(const choir__tree_reduce *args)
{
    uint64_t scale;
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
                                  .dtype = (uint8_t)args->dtype,
                                  .op = CHOIR_SUM,
                                  .algorithm = (uint8_t)args->algorithm,
                                  .leaves = (int32_t)args->leaves,
                                  .layout = digest(args)},
        .in = args->nodes,
        .out = args->nodes,
        .node_stride = args->node_stride,
        .scale = args->scale};
    choir_work work;
    return choir__group_issue(group, &call, &work);
}
