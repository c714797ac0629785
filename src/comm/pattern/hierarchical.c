/* Hierarchical: as few bytes as possible between nodes, because transfers inside a node are
 * fast.
 *
 * The ranks of each node are contiguous. The data are cut into one slice per rank of the
 * largest node, and in each node every slice has an owner. Four rounds:
 *
 *   0  in the node: every rank sends slice s to its owner, which adds up the tree's blocks that
 *      are complete within the node (ranks 3 to 7 are blocks of 1 and 4: not one sum, or the
 *      bits would depend on where nodes begin)
 *   1  between nodes: the owners of slice s cut it into one piece per node; each receives one
 *      piece of all blocks and adds them in the tree
 *   2  between nodes: the owners of slice s collect its pieces
 *   3  in the node: owners send their slices to all ranks
 *
 * Between nodes, 2 (N-1)/N n bytes per node travel if its ranks are one block (as they are if
 * all nodes have the same power of two of ranks); otherwise the first half of these is
 * multiplied by the number of blocks.
 *
 * A broadcast goes to one rank per node, cut into one piece per node if it is large, as in the
 * exchange; that rank then sends it to its neighbors. */
#include "comm/pattern/build.h"

#include <stdlib.h>

enum { SMALL = 1024 }; /* cache lines; a broadcast up to this size is not cut */

typedef struct cluster {
    const choir__pattern_collective *p;
    choir__move_schedule *s;
    int nodes, mine; /* mine: this rank's */
    int slices;
    int blocks, all_blocks; /* tree blocks that are complete in this node; in all nodes */
    int *first;             /* (nodes + 1) ranks */
    int *sources; /* (slices) for slices that this rank owns: the first of the sources that
                     follow */
    choir__chunk_span
        *sums; /* (slices, blocks) for slices that this rank owns: this node's sums */
} cluster;

static choir__slice whole(const cluster *c)
{
    return (choir__slice){0, c->p->count};
}

static choir__slice slice_of(const cluster *c, int slice)
{
    return choir__slice_of(whole(c), c->p->align, slice, c->slices);
}

static choir__slice piece_of(const cluster *c, int slice, int node)
{
    return choir__slice_of(slice_of(c, slice), c->p->align, node, c->nodes);
}

static int owner(const cluster *c, int node, int slice)
{
    int ranks = c->first[node + 1] - c->first[node];
    return c->first[node] + slice * ranks / c->slices;
}

/* Returns true if this rank owns the slice. */
static bool own(const cluster *c, int slice)
{
    return owner(c, c->mine, slice) == c->p->rank;
}

static int blocks_of(const cluster *c, int node, choir__node blocks[CHOIR__MAX_NODES])
{
    const choir__pattern_collective *p = c->p;
    int64_t leaves = p->kind == CHOIR__TREE_REDUCE ? p->leaves : p->world, lo, hi, inner;
    choir__tree_run(leaves, c->first[node], p->world, &lo, &inner);
    choir__tree_run(leaves, c->first[node + 1] - 1, p->world, &inner, &hi);
    return choir__tree_nodes(lo, hi, blocks);
}

static void cluster_init(
    cluster *c, const choir__pattern_collective *p, choir__move_schedule *s)
{
    choir__node blocks[CHOIR__MAX_NODES];
    *c = (cluster){.p = p, .s = s};
    c->first = choir__alloc(((size_t)p->world + 1) * sizeof *c->first);
    for (int r = 0; r < p->world; r++) {
        if (r == 0 || (p->nodes && p->nodes[r] != p->nodes[r - 1]))
            c->first[c->nodes++] = r;
        if (r == p->rank)
            c->mine = c->nodes - 1;
    }
    c->first[c->nodes] = p->world;
    for (int n = 0; n < c->nodes; n++)
        c->slices = (int)choir__max(c->slices, c->first[n + 1] - c->first[n]);
    for (int n = 0; n < c->nodes; n++)
        c->all_blocks += blocks_of(c, n, blocks);
    c->blocks = blocks_of(c, c->mine, blocks);
    c->sources = choir__calloc((size_t)c->slices, sizeof *c->sources);
    c->sums = choir__calloc((size_t)(c->slices * c->blocks), sizeof *c->sums);
}

static void cluster_free(cluster *c)
{
    free(c->first);
    free(c->sources);
    free(c->sums);
}

/* --- round 0 --- */

/* Receives the leaves of this node's ranks for a slice that this rank owns. */
static void receive_leaves(cluster *c, int slice)
{
    const choir__pattern_collective *p = c->p;
    const choir__slice mine = slice_of(c, slice);
    choir__node nodes[CHOIR__MAX_NODES];
    c->sources[slice] = c->s->source_count;
    for (int r = c->first[c->mine]; r < c->first[c->mine + 1]; r++) {
        int n = choir__pattern_nodes(p, r, nodes);
        for (int k = 0; k < n; k++) {
            choir__chunk_span at = choir__in(k * p->node_stride + mine.at);
            if (r != p->rank) {
                at = choir__add_scratch(c->s, mine.count);
                choir__add_receive(c->s, 0, r, at, mine.count);
            }
            choir__add_source(c->s, nodes[k], at);
        }
    }
}

static void send_leaves(const cluster *c, int slice)
{
    const choir__pattern_collective *p = c->p;
    const choir__slice goes = slice_of(c, slice);
    const int to = owner(c, c->mine, slice);
    choir__node nodes[CHOIR__MAX_NODES];
    int n = choir__pattern_nodes(p, p->rank, nodes);
    for (int k = 0; k < n && to != p->rank; k++)
        choir__add_send(c->s, 0, to, choir__in(k * p->node_stride + goes.at), goes.count);
}

/* Reduces the node's blocks. A block of one leaf stays where it is. */
static void reduce_blocks(cluster *c, int slice)
{
    choir__node blocks[CHOIR__MAX_NODES];
    const int count = blocks_of(c, c->mine, blocks);
    int at = c->sources[slice];
    for (int b = 0; b < count; b++) {
        const int first = at;
        for (int64_t leaves = 0; leaves < blocks[b].leaves; at++)
            leaves += c->s->sources[at].node.leaves;
        choir__chunk_span *sum = &c->sums[slice * c->blocks + b];
        *sum = c->s->sources[first].at;
        if (at - first == 1)
            continue;
        *sum = choir__add_scratch(c->s, slice_of(c, slice).count);
        choir__add_reduce(c->s, 0, first, at - first, *sum, slice_of(c, slice).count);
    }
}

/* --- rounds 1 and 2 --- */

/* Receives this rank's piece of all nodes' blocks. */
static void receive_blocks(cluster *c, int slice)
{
    const choir__slice mine = piece_of(c, slice, c->mine);
    choir__node blocks[CHOIR__MAX_NODES];
    c->sources[slice] = c->s->source_count;
    for (int node = 0; node < c->nodes; node++) {
        int n = blocks_of(c, node, blocks);
        for (int b = 0; b < n; b++) {
            choir__chunk_span at;
            if (node == c->mine) {
                at = choir__past(
                    c->sums[slice * c->blocks + b], mine.at - slice_of(c, slice).at);
            } else {
                at = choir__add_scratch(c->s, mine.count);
                choir__add_receive(c->s, 1, owner(c, node, slice), at, mine.count);
            }
            choir__add_source(c->s, blocks[b], at);
        }
    }
}

static void send_blocks(const cluster *c, int slice)
{
    for (int i = 1; i < c->nodes; i++) {
        int node = (c->mine + i) % c->nodes;
        choir__slice goes = piece_of(c, slice, node);
        for (int b = 0; b < c->blocks; b++)
            choir__add_send(c->s, 1, owner(c, node, slice),
                choir__past(c->sums[slice * c->blocks + b], goes.at - slice_of(c, slice).at),
                goes.count);
    }
}

static void reduce_piece(const cluster *c, int slice)
{
    const choir__slice mine = piece_of(c, slice, c->mine);
    choir__add_reduce(
        c->s, 1, c->sources[slice], c->all_blocks, choir__out(mine.at), mine.count);
    if (choir__pattern_rescales(c->p))
        choir__add_rescale(c->s, 1, choir__out(mine.at), mine.count);
}

static void collect_slice(const cluster *c, int slice)
{
    const choir__slice mine = piece_of(c, slice, c->mine);
    for (int i = 1; i < c->nodes; i++) {
        int node = (c->mine + i) % c->nodes;
        choir__slice theirs = piece_of(c, slice, node);
        choir__add_receive(c->s, 2, owner(c, node, slice), choir__out(theirs.at), theirs.count);
        choir__add_send(c->s, 2, owner(c, node, slice), choir__out(mine.at), mine.count);
    }
}

/* --- whole collectives --- */

static void spread_slice(const cluster *c, int slice)
{
    const choir__slice data = slice_of(c, slice);
    const int first = c->first[c->mine], ranks = c->first[c->mine + 1] - first;
    if (!own(c, slice))
        choir__add_receive(c->s, 3, owner(c, c->mine, slice), choir__out(data.at), data.count);
    for (int i = 1; i < ranks && own(c, slice); i++)
        choir__add_send(
            c->s, 3, first + (c->p->rank - first + i) % ranks, choir__out(data.at), data.count);
}

static void all_reduce(cluster *c)
{
    int slice;
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            receive_leaves(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        send_leaves(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            reduce_blocks(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            receive_blocks(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            send_blocks(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            reduce_piece(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        if (own(c, slice))
            collect_slice(c, slice);
    for (slice = 0; slice < c->slices; slice++)
        spread_slice(c, slice);
}

/* Returns the rank of a node that a broadcast reaches first. */
static int leader(const cluster *c, int node)
{
    int root = c->p->root, first = c->first[node];
    return first <= root && root < c->first[node + 1] ? root : first;
}

static choir__slice broadcast_piece(const cluster *c, bool cut, int node)
{
    return cut ? choir__slice_of(whole(c), c->p->align, node, c->nodes) : whole(c);
}

/* Sends a broadcast between the leaders: in pieces from the root and then among all leaders, or
 * whole in one round. */
static void broadcast_between(const cluster *c, bool cut)
{
    const choir__pattern_collective *p = c->p;
    const bool root = p->rank == p->root;
    choir__slice mine = broadcast_piece(c, cut, c->mine);
    if (!root)
        choir__add_receive(c->s, 0, p->root, choir__out(mine.at), mine.count);
    for (int i = 1; i < c->nodes && root; i++) {
        int node = (c->mine + i) % c->nodes;
        choir__slice theirs = broadcast_piece(c, cut, node);
        choir__add_send(c->s, 0, leader(c, node), choir__in(theirs.at), theirs.count);
    }
    for (int i = 1; i < c->nodes && cut; i++) {
        int node = (c->mine + i) % c->nodes;
        choir__slice theirs = broadcast_piece(c, cut, node);
        if (!root)
            choir__add_receive(c->s, 1, leader(c, node), choir__out(theirs.at), theirs.count);
        if (leader(c, node) != p->root)
            choir__add_send(c->s, 1, leader(c, node),
                root ? choir__in(mine.at) : choir__out(mine.at), mine.count);
    }
}

static void broadcast(const cluster *c)
{
    const choir__pattern_collective *p = c->p;
    const int first = c->first[c->mine], ranks = c->first[c->mine + 1] - first;
    const bool cut = c->nodes > 2 && p->count > SMALL * (int64_t)p->align;
    if (leader(c, c->mine) == p->rank)
        broadcast_between(c, cut);
    else
        choir__add_receive(c->s, 2, leader(c, c->mine), choir__out(0), p->count);
    for (int i = 1; i < ranks && leader(c, c->mine) == p->rank; i++)
        choir__add_send(c->s, 2, first + (p->rank - first + i) % ranks,
            p->rank == p->root ? choir__in(0) : choir__out(0), p->count);
    if (p->rank == p->root && !p->in_place)
        choir__add_copy(c->s, 2, choir__in(0), choir__out(0), p->count);
}

bool choir__pattern_hierarchical(const choir__pattern_collective *p, choir__move_schedule *s)
{
    cluster c;
    cluster_init(&c, p, s);
    if (p->kind == CHOIR__BROADCAST)
        broadcast(&c);
    else
        all_reduce(&c);
    cluster_free(&c);
    return true;
}
