/* Collectives on rows that are cut over the ranks: which rows, which nodes of the tree, and how
 * the calls are issued. See rows.h. */
#include "comm/rows.h"

#include <string.h>

#include "comm/issue.h"
#include "comm/reduce.h"

/* --- arithmetic --- */

int64_t choir__cut_part(const choir__cut *cut, int rank, int world, int64_t *lo)
{
    int64_t each = (cut->rows + world - 1) / world;
    int64_t begin = choir__min(rank * each, cut->rows);
    int64_t end = choir__min((rank + 1) * each, cut->rows);
    *lo = begin * cut->row;
    return (end - begin) * cut->row;
}

int64_t choir__cuts_part(const choir__cut *cuts, int cut_count, int rank, int world)
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
        const choir__reduction r = {.arith = choir__arith_find(CHOIR_F32, CHOIR_SUM),
            .nodes = nodes + i,
            .from = from + i,
            .to = &to,
            .sources = end - i,
            .outputs = 1,
            .scale = (double)args->scale,
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

/* --- the calls --- */

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Of the cuts, which all ranks must have alike. */
static uint64_t digest(const choir__cut *cuts, int count, bool own_places)
{
    uint64_t h = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        h = mix(
            mix(mix(h, (uint64_t)cuts[i].at), (uint64_t)cuts[i].rows), (uint64_t)cuts[i].row);
        h = own_places ? mix(h, (uint64_t)cuts[i].out) : h;
    }
    return h;
}

/* *whole: the end of the last block. */
static choir_status check_cuts(
    const char *name, const choir__cut *cuts, int count, int64_t most, int64_t *whole)
{
    *whole = 0;
    for (int i = 0; i < count; i++) {
        const choir__cut *c = &cuts[i];
        if (c->at < 0 || c->rows < 0 || c->row < 0 || c->out < 0 || c->at > most ||
            (c->row && c->rows > (most - c->at) / c->row))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s: cut %d is %lld rows of %lld elements from %lld on, its own from %lld on: "
                "want no more than %lld elements",
                name, i, (long long)c->rows, (long long)c->row, (long long)c->at,
                (long long)c->out, (long long)most);
        *whole = choir__max(*whole, c->at + c->rows * c->row);
    }
    return CHOIR_OK;
}

/* In a batch, who waits for the queue would not see it run. */
static choir_status issue(choir_group *group, choir__call *call, const void *args, size_t bytes)
{
    choir_work work;
    call->rows = choir__group_keep(group, args, bytes);
    choir_status status = choir__group_issue(group, call, &work);
    if (status != CHOIR_OK)
        choir__group_drop(group, call->rows);
    return status;
}

choir_status choir__group_tree_scatter(choir_group *group, const choir__tree_scatter *a)
{
    int64_t whole;
    uint32_t scale;
    choir__node nodes[CHOIR__MAX_NODES];
    if (check_cuts("tree_scatter", a->cuts, a->cut_count, a->count, &whole) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (a->first < 0 || a->leaves < 1 || a->total > INT32_MAX ||
        a->first > a->total - a->leaves || (a->leaves < a->total && a->scale != 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tree_scatter of micro-batches [%lld, %lld) of %lld, times %g: want a part of "
            "them, times 1, or all",
            (long long)a->first, (long long)(a->first + a->leaves), (long long)a->total,
            (double)a->scale);
    int mine =
        choir__scatter_nodes(a, choir_group_rank(group), choir_group_world(group), nodes);
    if (!a->nodes && mine && a->count)
        return choir__error(CHOIR_ERR_ARGUMENT, "tree_scatter of %d nodes at NULL", mine);
    memcpy(&scale, &a->scale, sizeof scale);
    uint64_t h = digest(a->cuts, a->cut_count, false);
    h = mix(mix(mix(mix(h, a->node_stride), scale), (uint64_t)a->first), (uint64_t)a->leaves);
    choir__call call = {.stamp = {.count = (uint64_t)a->count,
                            .kind = CHOIR__TREE_SCATTER,
                            .dtype = CHOIR_F32,
                            .op = CHOIR_SUM,
                            .root = (int32_t)a->total,
                            .layout = (uint32_t)h}};
    return issue(group, &call, a, sizeof *a);
}

choir_status choir__group_gather_rows(choir_group *group, const choir__gather_rows *a)
{
    int64_t whole;
    if ((unsigned)a->dtype >= CHOIR_DTYPE_COUNT)
        return choir__error(
            CHOIR_ERR_DTYPE, "gather_rows: there is no element type %d", (int)a->dtype);
    if (check_cuts("gather_rows", a->cuts, a->cut_count,
            INT64_MAX / (int64_t)choir_dtype_size(a->dtype), &whole) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (!a->all && whole)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "gather_rows of %lld elements to NULL", (long long)whole);
    uint64_t h = mix(digest(a->cuts, a->cut_count, a->mine), !a->mine);
    choir__call call = {.stamp = {.count = (uint64_t)whole,
                            .kind = CHOIR__GATHER_ROWS,
                            .dtype = (uint8_t)a->dtype,
                            .layout = (uint32_t)h}};
    return issue(group, &call, a, sizeof *a);
}
