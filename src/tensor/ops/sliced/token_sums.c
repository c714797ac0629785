/* Sums over tokens where weights have T slices, or sequences have S chunks: the gradients of
 * norms' weights.
 *
 *     slices      0   1   2   3           runs of the tokens of each sample
 *     ranks       0   0   1   1           if they share the tokens; else each has all
 *     sum        (0 + 1) + (2 + 3)        gamma's and beta's together
 *
 * A rank that has all tokens computes the tree in one kernel, if the device's kernels know
 * leaves (choir_device.chunks). Otherwise, or if a rank's leaves complete several nodes, it
 * computes leaf after leaf from copies of their rows. */
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/nodes.h"
#include "tensor/ops/sliced/slabs.h"
#include "tensor/tokens.h"

typedef choir__k_layer_norm_weights sums;

/* The operands, and where the sums go. */
typedef struct call {
    choir_scope *scope;
    sums args; /* without results */
    choir_tensor *x, *gy, *const *statistics;
    bool gamma, beta; /* which sums are computed */
} call;

/* Writes both sums to array i of the slab, or the one that is computed. */
static void launch(const call *c, sums args, const choir_tensor *slab, int64_t i)
{
    choir__arrays s = choir__arrays_of(slab);
    char *at = choir__array_of(&s, i);
    args.ggamma = c->gamma ? at : NULL;
    args.gbeta = c->beta
                     ? at + (c->gamma ? (size_t)args.cols * choir_dtype_size(slab->dtype) : 0)
                     : NULL;
    choir__launch(choir__device_of(c->x), c->x->dtype, layer_norm_weights, &args);
}

static void leaf(const call *c, choir_tensor *slab, int64_t l)
{
    sums args = c->args;
    const int64_t outer = choir__cut_outer(args.cut), rows = args.rows;
    int64_t from, end;
    choir__cut_leaf(args.cut, rows, l, &from, &end);
    choir_tensor *sum =
        choir__slab_array(slab, l, choir_dims(slab->count / slab->shape.dim[0]));
    if (from == end || !rows) {
        choir__launch_fill(sum, 0);
        return;
    }
    const choir__block block = {rows / outer, from, end};
    choir_tensor *own[] = {choir__rows_of_block(c->scope, c->x, rows, block),
        choir__rows_of_block(c->scope, c->gy, rows, block),
        choir__rows_of_block(c->scope, c->statistics[0], rows, block),
        choir__rows_of_block(c->scope, c->statistics[1], rows, block)};
    args.cut = (choir__cut){0};
    args.rows = outer * (end - from);
    for (size_t i = 0; i < CHOIR_COUNT(own); i++)
        if (own[i] && own[i]->poisoned)
            return;
    args.x = choir__data(own[0]), args.gy = choir__data(own[1]);
    args.mean = choir__data_or_null(own[2]), args.rstd = choir__data(own[3]);
    launch(c, args, slab, l);
    for (size_t i = 0; i < CHOIR_COUNT(own); i++)
        if (own[i])
            choir__tensor_release(own[i]);
}

/* Writes the nodes that the leaves here complete, and returns their number. Where ranks share
 * sequences, and each of them its tokens with others, a rank has chunks of chunks:
 *
 *     0 1 2 3 4 5  |  6 7 8 9 10 11      ranks that share sequences
 *     0 1 2 | 3 4 5   6 7 8 | 9 10 11    ranks that share these tokens: nodes (0 + 1) 2 | ...
 */
static int nodes_here(const call *c, const choir__partition *mark, const choir__sequence *joins,
    choir__node nodes[CHOIR__MAX_NODES])
{
    if (mark && joins) {
        int64_t first = joins->first + mark->first;
        return choir__tree_nodes(first, first + mark->own, nodes);
    }
    if (mark || joins)
        return mark ? choir__slices_nodes(mark, nodes) : choir__sequence_nodes(joins, nodes);
    nodes[0] = (choir__node){0, c->args.cut.leaves};
    return 1;
}

/* Adds up the nodes of the ranks that share these tokens, and then of all ranks. */
static bool join(choir_tensor *slab, const choir__partition *mark, const choir__sequence *joins)
{
    return (!mark || choir__slices_join(mark, slab, false)) &&
           (!joins || choir__sequence_join(joins, slab));
}

/* Computes this rank's nodes in a slab, and joins them; node 0 becomes the sum. */
static choir_tensor *joined(const call *c, choir_dtype dtype)
{
    const choir__partition *mark = choir__tokens_of(c->x);
    const choir__sequence *joins = choir__joining(c->scope, c->x);
    choir_device *device = choir__device_of(c->x);
    choir__node nodes[CHOIR__MAX_NODES];
    int all = joins ? choir__sequence_nodes(joins, nodes) : 1,
        count = nodes_here(c, mark, joins, nodes);
    bool at_once = count == 1 && device->chunks;
    int64_t leaves = c->args.cut.leaves, arrays = choir__max(all, at_once ? 1 : leaves);
    choir_tensor *slab = choir__new_slab(
        c->scope, device, dtype, arrays, choir_dims(c->gamma + c->beta, c->args.cols));
    if (slab->poisoned)
        return NULL;
    if (at_once)
        launch(c, c->args, slab, 0);
    for (int64_t l = 0; l < leaves && !at_once; l++)
        leaf(c, slab, l);
    choir__arrays s = choir__arrays_of(slab);
    if (!at_once)
        choir__arrays_fold_nodes(&s, nodes[0].start, nodes, count);
    return join(slab, mark, joins) ? slab : NULL;
}

bool choir__token_sums(choir_scope *scope, choir__k_layer_norm_weights args, choir_tensor *x,
    choir_tensor *gy, choir_tensor *const statistics[2], choir_tensor *ggamma,
    choir_tensor *gbeta)
{
    args.cut = choir__tokens_cut(scope, x);
    if (!choir__tokens_of(x) && !choir__joining(scope, x) &&
        (!choir__is_cut(args.cut) || choir__device_of(x)->chunks)) {
        args.ggamma = choir__data_or_null(ggamma);
        args.gbeta = choir__data_or_null(gbeta);
        choir__launch(choir__device_of(x), x->dtype, layer_norm_weights, &args);
        return true;
    }
    call c = {scope, args, x, gy, statistics, ggamma, gbeta};
    choir_tensor *to[] = {ggamma, gbeta}, *slab = joined(&c, (ggamma ? ggamma : gbeta)->dtype);
    for (int i = 0, at = 0; i < 2 && slab; i++)
        if (to[i])
            choir__launch_copy(to[i], choir__slab_array(slab, at++, choir_dims(args.cols)));
    if (slab)
        choir__tensor_release(slab);
    return slab;
}
