/* Which algorithm runs a collective.
 *
 * All ranks must choose the same algorithm, so the choice depends only on facts on which they
 * agree: the kind, the count, the type, and the ranks' nodes. An automatic choice always keeps
 * the fixed tree, so it never changes the bits. bf16 and f16 are rounded once: only the
 * exchange has all ranks' values available when it adds. Other algorithms, which have to be
 * named, send them as f32.
 *
 *   nodes of several ranks    hierarchical: less between the nodes
 *   few ranks                 exchange: two rounds, a ring's bytes
 *   many, small data          trees: binomial sends least, then halving
 *   many, large data          exchange
 *
 * "Many" means more than 16 ranks on separate nodes, which wait for the network, or more than 4
 * on one node, which wait for their turns on its cores, so that the number of messages counts.
 * (8 ranks over UCX on two cores, all-reduce of 16 KiB and 256 KiB: exchange 0.43 and 8.4 ms,
 * binomial 0.20 and 1.2, halving 0.22 and 1.0.) */
#include "comm/pattern/build.h"

enum { MANY_NODES = 16, MANY_ON_ONE = 4 }; /* ranks */
enum { SMALL = 256, MIDDLE = 8192 };       /* cache lines: 16 KiB, 512 KiB */

/* Returns true if there are several nodes and some node has several ranks. */
static bool layered(const choir__pattern_collective *p)
{
    bool together = false;
    for (int r = 1; r < p->world && p->nodes; r++)
        together |= p->nodes[r] == p->nodes[r - 1];
    return together && p->nodes[p->world - 1] != p->nodes[0];
}

/* Returns the cache lines of the largest buffer. */
static int64_t lines_of(const choir__pattern_collective *p)
{
    bool parts = p->kind == CHOIR__GATHER || p->kind == CHOIR__ALL_GATHER ||
                 p->kind == CHOIR__SCATTER || p->kind == CHOIR__REDUCE_SCATTER;
    return p->count / p->align * (parts ? p->world : 1);
}

static choir__algorithm by_size_and_place(const choir__pattern_collective *p)
{
    const bool one_node = !p->nodes || p->nodes[p->world - 1] == p->nodes[0];
    const int64_t lines = lines_of(p);
    if (layered(p) && choir__move_schedule_does(p, CHOIR__HIERARCHICAL))
        return CHOIR__HIERARCHICAL;
    if (p->world <= (one_node ? MANY_ON_ONE : MANY_NODES) || lines > MIDDLE)
        return CHOIR__EXCHANGE;
    switch (p->kind) {
    case CHOIR__ALL_REDUCE: return lines > SMALL ? CHOIR__HALVING : CHOIR__BINOMIAL;
    case CHOIR__REDUCE:
    case CHOIR__BROADCAST:
    case CHOIR__GATHER:
    case CHOIR__SCATTER: return CHOIR__BINOMIAL;
    case CHOIR__ALL_GATHER: return lines > SMALL ? CHOIR__EXCHANGE : CHOIR__HALVING;
    case CHOIR__REDUCE_SCATTER: return lines > SMALL ? CHOIR__EXCHANGE : CHOIR__BINOMIAL;
    default: return CHOIR__EXCHANGE;
    }
}

choir__algorithm choir__move_schedule_choose(
    const choir__pattern_collective *collective, choir_dtype dtype)
{
    bool half = dtype == CHOIR_BF16 || dtype == CHOIR_F16;
    bool named = collective->algorithm != CHOIR__AUTO &&
                 collective->algorithm != CHOIR__DIRECT &&
                 collective->algorithm != CHOIR__NATIVE;
    if (named && choir__move_schedule_does(collective, collective->algorithm))
        return collective->algorithm;
    return half && choir__pattern_reduces(collective) ? CHOIR__EXCHANGE
                                                      : by_size_and_place(collective);
}
