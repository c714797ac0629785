/* Collectives on rows in shared memory: each rank reads its own rows of all peers' nodes, or
 * all peers' rows, in place. Data in private memory go by messages. */
#include "comm/rows.h"
#include "comm/shm/shm.h"

#include <string.h>

static choir_status by_messages(choir__shm *shm, const choir__call *call)
{
    return choir__shm_tell(shm, choir__message_run(&shm->base, call));
}

static choir_status unfit(choir__shm *shm, const choir__call *call, int rank)
{
    const char *name = choir__kind_name((choir__kind)call->stamp.kind);
    const choir__shm_place place = choir__shm_details(shm, rank)->in;
    if (!choir__shm_at(shm, place, 0))
        return choir__shm_fail(shm, CHOIR_ERR_STATE,
            "rank %d uses shared memory that rank %d has freed",
            choir__engine_number(&shm->base, rank),
            choir__engine_number(&shm->base, shm->base.rank));
    return choir__shm_fail(shm, CHOIR_ERR_ARGUMENT,
        "%s: what rank %d gives does not fit its shared memory", name,
        choir__engine_number(&shm->base, rank));
}

/* --- tree_scatter --- */

/* Returns true if the nodes of all ranks that have any are in shared memory, according to the
 * published details. */
static bool nodes_shared(const choir__shm *shm, const choir__tree_scatter *a)
{
    choir__node nodes[CHOIR__MAX_NODES];
    for (int r = 0; r < shm->base.world; r++)
        if (choir__scatter_nodes(a, r, shm->base.world, nodes) &&
            !choir__shm_details(shm, r)->in.shared)
            return false;
    return true;
}

/* Writes all ranks' nodes, in the tree's order, to shm->nodes and shm->sources; returns their
 * number. */
static int find_nodes(choir__shm *shm, const choir__call *call)
{
    const choir__tree_scatter *a = call->rows;
    choir__node nodes[CHOIR__MAX_NODES];
    int count = 0;
    for (int r = 0; r < shm->base.world; r++) {
        int n = choir__scatter_nodes(a, r, shm->base.world, nodes);
        size_t span = (size_t)(n ? n - 1 : 0) * a->node_stride + (size_t)a->count * 4;
        const char *at = n ? choir__shm_at(shm, choir__shm_details(shm, r)->in, span) : NULL;
        if (n && !at) {
            unfit(shm, call, r);
            return 0;
        }
        choir__shm_add_sources(shm, r, nodes, n, at, a->node_stride, count);
        count += n;
    }
    return count;
}

choir_status choir__shm_tree_scatter(choir__shm *shm, const choir__call *call)
{
    const choir__tree_scatter *a = call->rows;
    choir__node nodes[CHOIR__MAX_NODES], results[CHOIR__MAX_NODES];
    int rank = shm->base.rank, world = shm->base.world;
    int mine = choir__scatter_nodes(a, rank, world, nodes);
    bool any = mine && a->count;
    choir__shm_my_details(shm)->in =
        any ? choir__shm_find(shm, a->nodes, choir__shm_bytes(&call->stamp))
            : (choir__shm_place){0};
    if (choir__shm_enter(shm, &call->stamp) != CHOIR_OK)
        return shm->base.failed;
    if (!a->count)
        return CHOIR_OK;
    if (!nodes_shared(shm, a))
        return by_messages(shm, call);
    int sources = find_nodes(shm, call);
    if (shm->base.failed != CHOIR_OK)
        return shm->base.failed;
    size_t size = choir_dtype_size(a->dtype);
    size_t at = 0, sum = 0; /* offsets of the sources in their buffers, in bytes */
    for (int i = 0; i < a->cut_count; i++) {
        int64_t lo, n = choir__cut_part(&a->cuts[i], rank, world, &lo);
        size_t begin = (size_t)(a->cuts[i].at + lo) * size;
        for (int k = 0; k < sources && n; k++)
            shm->sources[k] = shm->sources[k] - at + begin;
        at = n ? begin : at;
        if (n)
            choir__scatter_add(a, shm->nodes, shm->sources, sources,
                (char *)a->out + (size_t)a->cuts[i].out * size, n, shm->scratch);
        sum += (size_t)n * size;
    }
    choir__shm_count(
        shm, sum * (size_t)(sources - mine + choir__scatter_results(a, results) - 1));
    return choir__shm_barrier(shm);
}

/* --- gather_rows --- */

/* Returns the elements from a rank's first to its last element, and where they begin. */
static int64_t span_of(
    const choir__gather_rows *a, int rank, int world, bool own, int64_t *first)
{
    int64_t begin = INT64_MAX, end = 0, lo;
    for (int i = 0; i < a->cut_count; i++) {
        int64_t n = choir__cut_part(&a->cuts[i], rank, world, &lo);
        int64_t at = own ? a->cuts[i].out : a->cuts[i].at + lo;
        begin = n ? choir__min(begin, at) : begin;
        end = n ? choir__max(end, at + n) : end;
    }
    *first = end ? begin : 0;
    return end - *first;
}

/* Copies the rows of rank s, which begin at `from`. */
static void pull(
    const choir__shm *shm, const choir__gather_rows *a, size_t size, int s, const char *from)
{
    int64_t first, lo;
    span_of(a, s, shm->base.world, a->mine != NULL, &first);
    for (int i = 0; i < a->cut_count; i++) {
        int64_t n = choir__cut_part(&a->cuts[i], s, shm->base.world, &lo);
        int64_t at = a->mine ? a->cuts[i].out : a->cuts[i].at + lo;
        char *to = (char *)a->all + (size_t)(a->cuts[i].at + lo) * size;
        if (n && to != from + (size_t)(at - first) * size)
            memmove(to, from + (size_t)(at - first) * size, (size_t)n * size);
    }
}

choir_status choir__shm_gather_rows(choir__shm *shm, const choir__call *call)
{
    const choir__gather_rows *a = call->rows;
    size_t size = choir_dtype_size(a->dtype), fetched = 0;
    int rank = shm->base.rank, world = shm->base.world;
    const char *base = a->mine ? a->mine : a->all;
    int64_t first, span = span_of(a, rank, world, a->mine != NULL, &first);
    choir__shm_my_details(shm)->in =
        span ? choir__shm_find(shm, base + (size_t)first * size, (size_t)span * size)
             : (choir__shm_place){0};
    if (choir__shm_enter(shm, &call->stamp) != CHOIR_OK)
        return shm->base.failed;
    for (int r = 0; r < world; r++)
        if (span_of(a, r, world, a->mine != NULL, &first) &&
            !choir__shm_details(shm, r)->in.shared)
            return by_messages(shm, call);
    for (int i = 0; i < world; i++) {
        int s = (rank + i) % world;
        span = span_of(a, s, world, a->mine != NULL, &first);
        if (!span)
            continue;
        const char *from =
            s == rank ? base + (size_t)first * size
                      : choir__shm_at(shm, choir__shm_details(shm, s)->in, (size_t)span * size);
        if (!from)
            return unfit(shm, call, s);
        pull(shm, a, size, s, from);
        fetched += i ? (size_t)choir__cuts_part(a->cuts, a->cut_count, s, world) * size : 0;
    }
    choir__shm_count(shm, fetched);
    return choir__shm_barrier(shm);
}
