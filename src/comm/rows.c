/* Checks the cuts of a collective on rows, and issues it: the stamp has a digest of all
 * arguments that must be equal on the ranks, so that a difference is a sentence on all of them
 * and not wrong data. */
#include "comm/rows.h"

#include <string.h>

#include "comm/issue.h"

static uint64_t mix(uint64_t h, uint64_t value)
{
    h = (h ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

/* Returns a digest of the cuts, which must be equal on all ranks. */
static uint64_t digest(const choir__rows_cut *cuts, int count, bool own_places)
{
    uint64_t h = (uint64_t)count;
    for (int i = 0; i < count; i++) {
        h = mix(
            mix(mix(h, (uint64_t)cuts[i].at), (uint64_t)cuts[i].rows), (uint64_t)cuts[i].row);
        h = cuts[i].of ? mix(mix(h, (uint64_t)cuts[i].first), (uint64_t)cuts[i].of) : h;
        h = cuts[i].turn ? mix(h, (uint64_t)cuts[i].turn) : h;
        h = own_places ? mix(h, (uint64_t)cuts[i].out) : h;
    }
    return h;
}

/* Checks the cuts; sets *whole to the end of the last block. */
static choir_status check_cuts(
    const char *name, const choir__rows_cut *cuts, int count, int64_t most, int64_t *whole)
{
    *whole = 0;
    for (int i = 0; i < count; i++) {
        const choir__rows_cut *c = &cuts[i];
        bool within = !c->of || (c->first >= 0 && c->first <= c->of - c->rows);
        if (c->at < 0 || c->rows < 0 || c->row < 0 || c->out < 0 || c->at > most || !within ||
            (c->row && c->rows > (most - c->at) / c->row))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s: cut %d: expected at most %lld elements, got %lld rows of %lld from "
                "%lld on, its own from %lld on",
                name, i, (long long)most, (long long)c->rows, (long long)c->row,
                (long long)c->at, (long long)c->out);
        *whole = choir__max(*whole, c->at + c->rows * c->row);
    }
    return CHOIR_OK;
}

/* Always passes work, which the group rejects inside a batch: a caller that waits for the queue
 * would not see the call run. */
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
    uint64_t scale;
    choir__node nodes[CHOIR__MAX_NODES];
    if (check_cuts("tree_scatter", a->cuts, a->cut_count, a->count, &whole) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (a->first < 0 || a->leaves < 1 || a->total > INT32_MAX ||
        a->first > a->total - a->leaves || (a->leaves < a->total && a->scale != 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tree_scatter: expected a part of the micro-batches, times 1, or all, got "
            "[%lld, %lld) of %lld, times %g",
            (long long)a->first, (long long)(a->first + a->leaves), (long long)a->total,
            a->scale);
    int mine =
        choir__scatter_nodes(a, choir_group_rank(group), choir_group_world(group), nodes);
    if (!a->nodes && mine && a->count)
        return choir__error(CHOIR_ERR_ARGUMENT, "tree_scatter of %d nodes at NULL", mine);
    memcpy(&scale, &a->scale, sizeof scale);
    uint64_t h = digest(a->cuts, a->cut_count, false);
    h = mix(mix(mix(mix(h, a->node_stride), scale), (uint64_t)a->first), (uint64_t)a->leaves);
    choir__call call = {.stamp = {.count = (uint64_t)a->count,
                            .kind = CHOIR__TREE_SCATTER,
                            .dtype = (uint8_t)a->dtype,
                            .op = CHOIR_SUM,
                            .leaves = (int32_t)a->total,
                            .layout = (uint32_t)h}};
    return issue(group, &call, a, sizeof *a);
}

choir_status choir__group_gather_rows(choir_group *group, const choir__gather_rows *a)
{
    int64_t whole;
    if ((unsigned)a->dtype >= CHOIR_DTYPE_COUNT)
        return choir__error(
            CHOIR_ERR_DTYPE, "gather_rows: unknown element type %d", (int)a->dtype);
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
