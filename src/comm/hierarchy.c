/* Several ranks on each of several nodes: sums go through shared memory first, so that a whole
 * node sends over the network only as much as one rank otherwise would.
 *
 *      node 0: ranks 0 1 2 3               node 1: ranks 4 5 6 7
 *      1. shared memory: all four have the node's sum
 *      2. network: rank 0 with 4, 1 with 5, 2 with 6, 3 with 7, a quarter of the data each
 *      3. shared memory: everyone gets the other three quarters
 *
 * If all nodes have the same power of two of ranks, the fixed tree over ranks is the fixed tree
 * over nodes of the fixed trees inside them, so the bits equal those of every other way. All
 * other calls, and sums that would be rounded twice, go to the engine of all ranks. */
#include "comm/openers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"
#include "comm/shm/shm.h"

/* Bytes. Smaller sums are not cut into one message per rank of the node. */
enum { UNCUT = 16 * 1024 };

typedef struct hierarchy {
    choir__engine base;
    choir__engine *whole;  /* all ranks */
    choir__engine *local;  /* the ranks of this node: shm */
    choir__engine *across; /* the ranks with this local rank, one per node */
} hierarchy;

bool choir__hierarchy_fits(const choir__meeting *m)
{
    if (!m->members || m->nodes < 2 || m->world % m->nodes != 0)
        return false;
    int each = m->world / m->nodes;
    for (int r = 0; r < m->world; r++)
        if (m->members[r].node != r / each)
            return false;
    return each > 1 && (each & (each - 1)) == 0;
}

/* --- failures --- */

/* Makes a part's failure the group's. The engine of all ranks decides on one sentence for all
 * of them, the first failure's; the other parts then only have to wake the ranks that wait in
 * them. */
static choir_status adopt(hierarchy *h, choir__engine *part, choir_status status)
{
    choir__engine *parts[] = {h->whole, h->local, h->across};
    if (status == CHOIR_OK)
        return CHOIR_OK;
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        choir__engine_spread(parts[i], status, "%s", (i ? h->whole : part)->message);
    return choir__engine_fail(&h->base, h->whole->failed, "%s", h->whole->message);
}

/* A part words its failures for the group. */
static void introduce(const hierarchy *h, choir__engine *part)
{
    part->name = h->base.name;
    part->role = h->base.role;
}

static choir_status run_on(hierarchy *h, choir__engine *part, choir__call call)
{
    introduce(h, part);
    call.stamp.seq = ++part->seq;
    choir_status status = adopt(h, part, part->ops->run(part, &call));
    atomic_store(&h->base.bytes, atomic_load(&h->whole->bytes) + atomic_load(&h->local->bytes) +
                                     atomic_load(&h->across->bytes));
    return status;
}

/* --- sums --- */

/* Returns the part of a sum that local rank l sends across nodes. */
static void part_of(
    const hierarchy *h, const choir__call *call, size_t size, int l, int64_t *lo, int64_t *hi)
{
    int64_t count = (int64_t)call->stamp.count;
    if ((size_t)count * size > UNCUT) {
        choir__reduce_slice(count, size, l, h->local->world, lo, hi);
    } else {
        *lo = 0;
        *hi = l == 0 ? count : 0;
    }
}

/* Finishes a sum whose node's part is in out on every rank of the node: adds between the nodes,
 * then broadcasts to all ranks of the node. */
static choir_status finish_sum(hierarchy *h, const choir__call *call, double scale, int divisor)
{
    const choir__stamp *s = &call->stamp;
    choir_reduce_op op = s->op == CHOIR_MEAN ? CHOIR_SUM : (choir_reduce_op)s->op;
    const choir__arith *arith = choir__arith_find((choir_dtype)s->dtype, op);
    int64_t lo, hi;
    choir__call part = {.stamp = {.kind = CHOIR__ALL_REDUCE,
                            .dtype = s->dtype,
                            .op = (uint8_t)op,
                            .algorithm = CHOIR__AUTO}};
    part_of(h, call, arith->size, h->local->rank, &lo, &hi);
    part.stamp.count = (uint64_t)(hi - lo);
    part.in = part.out = (char *)call->out + (size_t)lo * arith->size;
    if (hi > lo && run_on(h, h->across, part) != CHOIR_OK)
        return h->base.failed;
    if (hi > lo && (scale != 1 || divisor != 1))
        arith->rescale(part.out, hi - lo, scale, divisor);

    part.stamp.kind = CHOIR__BROADCAST;
    part.stamp.op = CHOIR_SUM;
    for (int l = 0; l < h->local->world; l++) {
        part_of(h, call, arith->size, l, &lo, &hi);
        part.stamp.root = choir__engine_number(h->local, l);
        part.stamp.count = (uint64_t)(hi - lo);
        part.in = part.out = (char *)call->out + (size_t)lo * arith->size;
        if (hi > lo && run_on(h, h->local, part) != CHOIR_OK)
            return h->base.failed;
    }
    return CHOIR_OK;
}

static choir_status all_reduce(hierarchy *h, const choir__call *call)
{
    bool mean = call->stamp.op == CHOIR_MEAN;
    choir__call node = *call;
    if (mean)
        node.stamp.op = CHOIR_SUM;
    node.stamp.algorithm = CHOIR__AUTO;
    if (run_on(h, h->local, node) != CHOIR_OK)
        return h->base.failed;
    int world = h->base.world;
    return finish_sum(h, call, mean ? 1.0 / world : 1, mean ? world : 1);
}

static choir_status tree_reduce(hierarchy *h, const choir__call *call)
{
    choir__call node = *call;
    node.stamp.leaves = call->stamp.leaves / h->base.nodes;
    node.stamp.algorithm = CHOIR__AUTO;
    node.scale = 1;
    if (run_on(h, h->local, node) != CHOIR_OK)
        return h->base.failed;
    return finish_sum(h, call, call->scale, 1);
}

/* Returns true if each node's sum is a node of the tree, and adding in layers keeps every
 * bit. */
static bool in_layers(const hierarchy *h, const choir__stamp *s)
{
    int leaves = s->leaves / h->base.nodes; /* per node, in a tree reduction */
    if (s->algorithm != CHOIR__AUTO && s->algorithm != CHOIR__HIERARCHICAL)
        return false;
    if (s->kind == CHOIR__TREE_REDUCE)
        return s->leaves % h->base.world == 0 && (leaves & (leaves - 1)) == 0;
    return s->kind == CHOIR__ALL_REDUCE && s->dtype != CHOIR_BF16 && s->dtype != CHOIR_F16 &&
           !(s->dtype == CHOIR_U8 && s->op == CHOIR_MEAN);
}

/* Lets all ranks of the node meet before the call. Ranks that disagree may make calls that run
 * on two different engines, and would otherwise wait for one another. */
static choir_status enter(hierarchy *h, const choir__call *call)
{
    choir__shm *local = (choir__shm *)h->local;
    choir__stamp stamp = call->stamp;
    stamp.seq = ++local->base.seq;
    introduce(h, h->local);
    local->stepped++;
    return adopt(h, h->local, choir__shm_enter(local, &stamp));
}

/* --- the engine --- */

static choir_status run(choir__engine *engine, const choir__call *call)
{
    hierarchy *h = (hierarchy *)engine;
    if (!in_layers(h, &call->stamp))
        return enter(h, call) != CHOIR_OK ? h->base.failed : run_on(h, h->whole, *call);
    return call->stamp.kind == CHOIR__TREE_REDUCE ? tree_reduce(h, call) : all_reduce(h, call);
}

static choir_status run_batch(choir__engine *engine, const choir__call *calls, int count)
{
    hierarchy *h = (hierarchy *)engine;
    introduce(h, h->whole);
    return adopt(h, h->whole, h->whole->ops->run_batch(h->whole, calls, count));
}

static choir_status fail(choir__engine *engine, choir_status status, const char *sentence)
{
    hierarchy *h = (hierarchy *)engine;
    choir__engine_spread(h->whole, status, "%s", sentence);
    return adopt(h, h->whole, h->whole->failed);
}

static void abort_calls(choir__engine *engine, choir_status status, const char *sentence)
{
    hierarchy *h = (hierarchy *)engine;
    choir__engine *parts[] = {h->whole, h->local, h->across};
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        if (parts[i]->ops->abort)
            parts[i]->ops->abort(parts[i], status, sentence);
}

/* Sub-groups inside one node get shared memory. */
static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    hierarchy *h = (hierarchy *)engine;
    int each = h->local->world, first = h->base.rank / each * each, near = 0;
    int *local = choir__calloc((size_t)count, sizeof *local);
    for (int i = 0; i < count; i++) {
        local[i] = ranks[i] - first;
        near += local[i] >= 0 && local[i] < each;
    }
    choir__engine *part = near == count ? h->local : h->whole;
    uint32_t seq = part->seq;
    /* Names are derived from it, and the local engine counts fewer calls. */
    part->seq = engine->seq;
    choir_status status =
        part->ops->split(part, part == h->local ? local : ranks, count, rank, color, child);
    part->seq = seq;
    free(local);
    return part->failed != CHOIR_OK ? adopt(h, part, status) : status;
}

static void close_all(choir__engine *engine)
{
    hierarchy *h = (hierarchy *)engine;
    choir__engine *parts[] = {h->across, h->local, h->whole};
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        if (parts[i])
            parts[i]->ops->close(parts[i]);
    choir__engine_free(engine);
}

static const choir__engine_ops hierarchy_ops = {
    .name = "ucx",
    .close = close_all,
    .run = run,
    .run_batch = run_batch,
    .split = split,
    .fail = fail,
    .abort = abort_calls,
};

static choir_status open_local(hierarchy *h, const choir__meeting *m, int each)
{
    int first = h->base.rank / each * each;
    choir__meeting node = {.rank = h->base.rank - first,
        .world = each,
        .timeout_s = m->timeout_s,
        .nodes = 1,
        .members = choir__calloc((size_t)each, sizeof *node.members)};
    memcpy(node.members, m->members + first, (size_t)each * sizeof *node.members);
    snprintf(node.job, sizeof node.job, "%.96s/node%d", m->job, first / each);
    choir_status status = choir__shm_open(&node, &h->local);
    free(node.members);
    return status;
}

static choir_status open_across(hierarchy *h, int each)
{
    int nodes = h->base.nodes, l = h->base.rank % each;
    int *ranks = choir__calloc((size_t)nodes, sizeof *ranks);
    for (int n = 0; n < nodes; n++)
        ranks[n] = n * each + l;
    choir_status status =
        h->whole->ops->split(h->whole, ranks, nodes, h->base.rank / each, l, &h->across);
    free(ranks);
    return status;
}

choir_status choir__hierarchy_open(
    choir__engine *whole, const choir__meeting *m, choir__engine **engine)
{
    int each = m->world / m->nodes;
    hierarchy *h = choir__calloc(1, sizeof *h);
    h->base = (choir__engine){.ops = &hierarchy_ops,
        .rank = m->rank,
        .world = m->world,
        .timeout_s = m->timeout_s,
        .nodes = m->nodes,
        .members = choir__calloc((size_t)m->world, sizeof *m->members)};
    memcpy(h->base.members, m->members, (size_t)m->world * sizeof *m->members);
    h->whole = whole;
    choir_status status = open_local(h, m, each);
    if (status == CHOIR_OK)
        status = open_across(h, each);
    if (status == CHOIR_OK) {
        h->local->first = m->rank / each * each;
        h->across->first = m->rank % each;
        h->across->gap = each - 1;
        *engine = &h->base;
    } else
        close_all(&h->base);
    return status;
}
