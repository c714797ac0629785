/* The arithmetic of rows that are cut over the ranks: which rows each rank has, which nodes
 * of the tree its micro-batches sum to, and how these nodes are added. It moves nothing;
 * engines and dry ranks compute their messages with it, so all agree on every offset and on
 * the order of sums. */
#include "comm/reduce.h"
#include "comm/rows.h"

int64_t choir__cut_part(const choir__rows_cut *cut, int rank, int world, int64_t *lo)
{
    rank = (rank + world - cut->turn) % world;
    int64_t each = ((cut->of ? cut->of : cut->rows) + world - 1) / world;
    int64_t begin = choir__max(0, choir__min(rank * each - cut->first, cut->rows));
    int64_t end = choir__max(0, choir__min((rank + 1) * each - cut->first, cut->rows));
    *lo = begin * cut->row;
    return (end - begin) * cut->row;
}

int64_t choir__cuts_part(const choir__rows_cut *cuts, int cut_count, int rank, int world)
{
    int64_t sum = 0, lo;
    for (int i = 0; i < cut_count; i++)
        sum += choir__cut_part(&cuts[i], rank, world, &lo);
    return sum;
}

int choir__scatter_nodes(
    const choir__tree_scatter *args, int rank, int world, choir__node nodes[CHOIR__MAX_NODES])
{
    int64_t lo, hi;
    choir__tree_run(args->leaves, rank, world, &lo, &hi);
    return choir__tree_nodes(args->first + lo, args->first + hi, nodes);
}

int choir__scatter_results(const choir__tree_scatter *args, choir__node nodes[CHOIR__MAX_NODES])
{
    if (args->leaves < args->total)
        return choir__tree_nodes(args->first, args->first + args->leaves, nodes);
    nodes[0] = (choir__node){0, args->total};
    return 1;
}

void choir__scatter_add(const choir__tree_scatter *args, const choir__node *nodes,
    const char *const *from, int sources, char *out, int64_t n, char *scratch)
{
    choir__node results[CHOIR__MAX_NODES];
    int count = choir__scatter_results(args, results);
    for (int k = 0, i = 0, end; k < count; k++, i = end) {
        int64_t last = results[k].start + results[k].leaves;
        char *to = out + (size_t)k * args->out_stride;
        for (end = i; end < sources && nodes[end].start < last;)
            end++;
        const choir__reduce_task r = {.arith = choir__arith_find(args->dtype, CHOIR_SUM),
            .nodes = nodes + i,
            .from = from + i,
            .to = &to,
            .sources = end - i,
            .outputs = 1,
            .scale = args->scale,
            .divisor = 1};
        choir__reduce(&r, scratch, 0, n);
    }
}

choir__kind choir__carried_as(choir__kind kind)
{
    return kind == CHOIR__TREE_SCATTER  ? CHOIR__ALL_TO_ALL
           : kind == CHOIR__GATHER_ROWS ? CHOIR__ALL_GATHER
                                        : kind;
}
