/* Sums of the ranks' nodes of the fixed tree. Groups add nodes in f32. In f64, or where the
 * ranks have a part of the tree's leaves, every rank gathers all nodes, padded to as many as a
 * rank can have, and adds them: such gradients are few, or small.
 *
 *     six leaves, two ranks     (0 + 1) 2 | 3 (4 + 5)     a stack of nodes, from the left */
#include <choir/distributed.h>

#include "parallel/blocks.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/slabs.h"

/* The leaves [first, first + count) of a tree. Each rank of a group has a run of them. */
typedef struct leaves {
    int64_t first, count;
    bool all; /* these are all leaves of the tree */
} leaves;

/* Writes the nodes of rank r. */
static int nodes_of(int r, int world, leaves of, choir__node nodes[CHOIR__MAX_NODES])
{
    int64_t lo, hi;
    choir__tree_run(of.count, r, world, &lo, &hi);
    return choir__tree_nodes(of.first + lo, of.first + hi, nodes);
}

/* The nodes on the stack, and the arrays in which they are. */
typedef struct stack {
    choir__arrays arrays;
    choir__node node[CHOIR__MAX_NODES];
    int64_t at[CHOIR__MAX_NODES];
    int top;
} stack;

/* Adds the two nodes on top. */
static void join(stack *s)
{
    s->top--;
    choir__k_add_scaled args = {.a = choir__array_of(&s->arrays, s->at[s->top - 1]),
        .b = choir__array_of(&s->arrays, s->at[s->top]),
        .y = choir__array_of(&s->arrays, s->at[s->top - 1]),
        .n = s->arrays.each,
        .scale = 1,
        .dtype = s->arrays.dtype};
    choir__launch(s->arrays.device, s->arrays.dtype, add_scaled, &args);
    s->node[s->top - 1].leaves += s->node[s->top].leaves;
}

/* Adds all ranks' nodes, `most` arrays of each, to the sum, or to the nodes that a part of the
 * leaves completes; these stay on the stack. */
static stack fold(choir_tensor *all, int world, leaves of, int most)
{
    stack s = {.arrays = choir__arrays_of(all)};
    choir__node nodes[CHOIR__MAX_NODES];
    for (int r = 0; r < world; r++)
        for (int i = 0, count = nodes_of(r, world, of, nodes); i < count; i++) {
            s.at[s.top] = (int64_t)r * most + i;
            s.node[s.top++] = nodes[i];
            while (s.top > 1 && choir__tree_siblings(s.node[s.top - 2], s.node[s.top - 1]))
                join(&s);
        }
    while (of.all && s.top > 1)
        join(&s);
    return s;
}

static choir_status gather(choir_tensor *nodes, choir_group *group, leaves of)
{
    const int world = choir_group_world(group);
    choir__node unused[CHOIR__MAX_NODES];
    int most = 0;
    for (int r = 0; r < world; r++)
        most = (int)choir__max(most, nodes_of(r, world, of, unused));
    choir_shape one = nodes->shape;
    one.dim[0] = 1;
    one = choir_dims(choir__shape_count(one));
    choir_tensor *own =
        choir__new_slab(nodes->scope, choir__device_of(nodes), nodes->dtype, most, one);
    if (own->poisoned)
        return choir__scope_status(nodes->scope);
    for (int64_t i = 0; i < most; i++) /* arrays beyond this rank's are not read */
        choir__launch_copy(choir__slab_array(own, i, one),
            choir__slab_array(nodes, choir__min(i, nodes->shape.dim[0] - 1), one));
    choir_tensor *all = choir_all_gather(own, group);
    if (all->poisoned)
        return choir__scope_status(nodes->scope);
    stack s = fold(all, world, of, most);
    for (int i = 0; i < s.top; i++)
        choir__launch_copy(
            choir__slab_array(nodes, i, one), choir__slab_array(all, s.at[i], one));
    choir__tensor_release(all);
    choir__tensor_release(own);
    return CHOIR_OK;
}

choir_status choir__nodes_reduce(choir_tensor *nodes, choir_group *group, int64_t slices)
{
    return nodes->dtype == CHOIR_F32 ? choir__nodes_add(nodes, group, slices)
                                     : gather(nodes, group, (leaves){0, slices, true});
}

choir_status choir__nodes_meet(
    choir_tensor *nodes, choir_group *group, int64_t first, int64_t count)
{
    return gather(nodes, group, (leaves){first, count, false});
}
