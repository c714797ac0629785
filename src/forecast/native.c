/* The price of NCCL's own algorithms, by the formulas of its tuner (NCCL 2.19 to
 * 2.27): latencies add up over steps, and bytes pass at the rate of the slowest link of
 * a ring that crosses each node's ports once.
 *
 *   ring    all-reduce 2 (n-1) steps, 2 nodes of them between nodes; 2 (n-1)/n bytes
 *           all-gather, reduce-scatter and the like: half of both
 *   trees   2 ((m-1) inner + log2(nodes) outer) of latency, two trees of half the data each:
 *           2 bytes at 0.92 of the rate
 *
 * with m members of a node. Other collectives are priced as rings of their bytes. */
#include "base/base.h"
#include "forecast/network.h"

/* The rates and latencies that a ring of the group sees. */
typedef struct ring {
    double n, nodes, local; /* members; nodes with members; members of a node */
    double inner_s, outer_s;
    double bytes_s;
} ring;

static double rate(const choir__link *l)
{
    return l->beta_bytes_s * l->share;
}

/* Returns the level that the group's messages between nodes take: the highest that has several
 * components with members. */
static choir__level outer_level(const choir__cluster *c, const choir__call_shape *call)
{
    const choir__step_group *g = &call->group;
    choir__level outer = CHOIR__LEVEL_CORE;
    if (!g->ranks)
        return choir__cluster_level(c, call->first, call->first + (g->size - 1) * g->stride);
    for (int64_t m = 0; m < g->size; m++)
        outer = choir__max(outer, choir__cluster_level(c, call->first, g->ranks[m]));
    return outer;
}

static ring ring_of(const choir__cluster *c, const choir__call_shape *call)
{
    int64_t groups, local = choir__group_members_in(c, call, CHOIR__LEVEL_NODE, &groups);
    const choir__level outer = outer_level(c, call);
    const choir__level inner =
        outer < CHOIR__LEVEL_NODE ? outer
        : choir__cluster_component(c, CHOIR__LEVEL_SOCKET) < c->devices_per_node
            ? CHOIR__LEVEL_SOCKET
            : CHOIR__LEVEL_CORE;
    ring r = {.n = (double)call->group.size,
        .local = (double)local,
        .nodes = (double)((call->group.size + local - 1) / local),
        .inner_s = c->links[inner].alpha_s,
        .outer_s = c->links[outer].alpha_s,
        .bytes_s = 0};
    if (local > 1)
        r.bytes_s = rate(&c->links[inner]) * (double)c->links[inner].ports;
    for (int level = CHOIR__LEVEL_NODE; level <= (int)outer; level++) {
        const choir__link *l = &c->links[level];
        int64_t sharing,
            members = choir__group_members_in(c, call, (choir__level)level, &sharing);
        double own = rate(l) * (double)choir__min(l->ports, members),
               part = rate(l) * (double)l->ports / (double)sharing;
        double least = own < part ? own : part;
        if (!(r.bytes_s > 0) || least < r.bytes_s)
            r.bytes_s = least;
    }
    return r;
}

static double log2_of(double x)
{
    double bits = 0;
    while (x > 1) {
        x /= 2;
        bits++;
    }
    return bits;
}

static void add_bytes(const choir__cluster *c, const choir__call_shape *call, const ring *r,
    double sent, choir__call_cost *cost)
{
    double crossing = r->nodes > 1 ? r->nodes / r->n : 0;
    choir__level inner = c->sockets_per_node > 1 ? CHOIR__LEVEL_SOCKET : CHOIR__LEVEL_CORE;
    cost->bytes[inner] += sent * r->n * (1 - crossing);
    cost->bytes[outer_level(c, call)] += sent * r->n * crossing;
}

void choir__network_price_native(
    const choir__cluster *c, const choir__call_shape *call, choir__call_cost *cost)
{
    const ring r = ring_of(c, call);
    const bool both = call->kind == CHOIR__ALL_REDUCE || call->kind == CHOIR__TREE_REDUCE;
    const bool parts = call->kind == CHOIR__ALL_GATHER || call->kind == CHOIR__REDUCE_SCATTER ||
                       call->kind == CHOIR__ALL_TO_ALL;
    const double bytes = choir__call_bytes(call) * (parts ? r.n : 1);
    const double ways = both ? 2 : 1, steps = ways * (r.n - 1),
                 outer_steps = r.nodes > 1 ? ways * r.nodes : 0;
    const double sent = ways * (r.n - 1) / r.n * bytes;
    *cost = (choir__call_cost){.algorithm = CHOIR__RING};
    cost->seconds = sent / r.bytes_s + outer_steps * r.outer_s +
                    (steps > outer_steps ? steps - outer_steps : 0) * r.inner_s;
    double tree = 2 * bytes / (0.92 * r.bytes_s) +
                  2 * ((r.local - 1) * r.inner_s + log2_of(r.nodes) * r.outer_s);
    if (both && tree < cost->seconds) {
        cost->seconds = tree;
        cost->algorithm = CHOIR__DOUBLE_TREE;
    }
    add_bytes(c, call, &r, sent, cost);
}
