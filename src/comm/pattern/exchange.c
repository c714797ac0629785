/* Exchange: all ranks talk to all ranks, in at most two rounds. The default.
 *
 * A reduction cuts the data into one slice per rank. Each rank sends its slice r to rank r,
 * which then has all ranks' slices r and adds them in the fixed tree; a second round sends the
 * results to all ranks (or to the root). This takes as many bytes as a ring, 2 (p-1)/p n per
 * rank, but two rounds instead of 2 (p-1). If the data are so small that rounds cost more than
 * bytes, all ranks send all their data to all ranks, and each adds everything itself, in one
 * round.
 *
 *      slice      0 1 2                    0 1 2
 *      rank 0     a b c                    A . .                A B C
 *      rank 1     a b c    to the owner    . B .    to all      A B C
 *      rank 2     a b c                    . . C                A B C
 *
 * A large broadcast is cut in the same way, so that the root sends all of it only twice. */
#include "comm/pattern/build.h"

enum { SMALL = 1024 }; /* cache lines that a rank receives, up to which one round is used */

/* The share of the data that a rank reduces. */
typedef enum sharing { SLICES, WHOLE, AT_ROOT, PARTS } sharing;

static bool small(const choir__pattern_collective *p)
{
    return p->world <= 2 ? p->count <= 4 * SMALL * (int64_t)p->align
                         : p->count * (p->world - 1) <= SMALL * (int64_t)p->align;
}

static choir__slice whole(const choir__pattern_collective *p)
{
    return (choir__slice){0, p->count};
}

static choir__slice share(const choir__pattern_collective *p, sharing how, int rank)
{
    switch (how) {
    case SLICES: return choir__slice_of(whole(p), p->align, rank, p->world);
    case WHOLE: return whole(p);
    case AT_ROOT: return (choir__slice){0, rank == p->root ? p->count : 0};
    case PARTS: return (choir__slice){rank * p->count, p->count};
    }
    return (choir__slice){0};
}

/* Returns the i-th peer, counted from the next rank so that not all ranks call rank 0 first. */
static int peer(const choir__pattern_collective *p, int i)
{
    return (p->rank + i) % p->world;
}

/* Receives every rank's leaves of this rank's share in round `round`, and reduces them to
 * `to`. */
static void reduce_shares(const choir__pattern_collective *p, choir__move_schedule *s,
    int round, sharing how, choir__chunk_span to)
{
    const choir__slice mine = share(p, how, p->rank);
    const int first_source = s->source_count;
    choir__node nodes[CHOIR__MAX_NODES];
    for (int r = 0; r < p->world && mine.count; r++) {
        int n = choir__pattern_nodes(p, r, nodes);
        for (int k = 0; k < n; k++) {
            choir__chunk_span at = choir__in(k * p->node_stride + mine.at);
            if (r != p->rank) {
                at = choir__add_scratch(s, mine.count);
                choir__add_receive(s, round, r, at, mine.count);
            }
            choir__add_source(s, nodes[k], at);
        }
    }
    int n = choir__pattern_nodes(p, p->rank, nodes);
    for (int i = 1; i < p->world; i++) {
        choir__slice theirs = share(p, how, peer(p, i));
        for (int k = 0; k < n; k++)
            choir__add_send(
                s, round, peer(p, i), choir__in(k * p->node_stride + theirs.at), theirs.count);
    }
    if (s->source_count == first_source)
        return;
    choir__add_reduce(s, round, first_source, s->source_count - first_source, to, mine.count);
    if (choir__pattern_rescales(p))
        choir__add_rescale(s, round, to, mine.count);
}

/* Sends all slices from their owners to all ranks' OUT. */
static void all_gather_slices(
    const choir__pattern_collective *p, choir__move_schedule *s, int round)
{
    choir__slice mine = share(p, SLICES, p->rank);
    for (int i = 1; i < p->world; i++) {
        choir__slice theirs = share(p, SLICES, peer(p, i));
        choir__add_receive(s, round, peer(p, i), choir__out(theirs.at), theirs.count);
    }
    for (int i = 1; i < p->world; i++)
        choir__add_send(s, round, peer(p, i), choir__out(mine.at), mine.count);
}

static void all_reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (small(p)) {
        reduce_shares(p, s, 0, WHOLE, choir__out(0));
        return;
    }
    reduce_shares(p, s, 0, SLICES, choir__out(share(p, SLICES, p->rank).at));
    all_gather_slices(p, s, 1);
}

static void reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (small(p)) {
        reduce_shares(p, s, 0, AT_ROOT, choir__out(0));
        return;
    }
    choir__slice mine = share(p, SLICES, p->rank);
    bool root = p->rank == p->root;
    choir__chunk_span result = root ? choir__out(mine.at) : choir__add_scratch(s, mine.count);
    reduce_shares(p, s, 0, SLICES, result);
    for (int i = 1; i < p->world && root; i++) {
        choir__slice theirs = share(p, SLICES, peer(p, i));
        choir__add_receive(s, 1, peer(p, i), choir__out(theirs.at), theirs.count);
    }
    if (!root)
        choir__add_send(s, 1, p->root, result, mine.count);
}

static void broadcast(const choir__pattern_collective *p, choir__move_schedule *s)
{
    bool root = p->rank == p->root, cut = !small(p) && p->world > 2;
    sharing how = cut ? SLICES : WHOLE;
    choir__slice mine = share(p, how, p->rank);
    for (int i = 1; i < p->world && root; i++) {
        choir__slice theirs = share(p, how, peer(p, i));
        choir__add_send(s, 0, peer(p, i), choir__in(theirs.at), theirs.count);
    }
    if (!root)
        choir__add_receive(s, 0, p->root, choir__out(mine.at), mine.count);
    for (int i = 1; i < p->world && cut && !root; i++) {
        choir__slice theirs = share(p, SLICES, peer(p, i));
        choir__add_receive(s, 1, peer(p, i), choir__out(theirs.at), theirs.count);
    }
    for (int i = 1; i < p->world && cut; i++) {
        choir__chunk_span from = root ? choir__in(mine.at) : choir__out(mine.at);
        choir__add_send(s, 1, peer(p, i), from, peer(p, i) == p->root ? 0 : mine.count);
    }
    if (root && !p->in_place)
        choir__add_copy(s, cut, choir__in(0), choir__out(0), p->count);
}

/* Returns the begin and the length of a rank's part of the input or the output. */
static choir__slice part(const choir__pattern_collective *p, const int64_t *counts, int rank)
{
    choir__slice slice = {rank * p->count, p->count};
    if (!counts)
        return slice;
    slice = (choir__slice){0, counts[rank]};
    for (int r = 0; r < rank; r++)
        slice.at += counts[r];
    return slice;
}

/* Gather, all-gather, scatter, all-to-all: each part goes directly to the rank that needs
 * it. */
static void straight(
    const choir__pattern_collective *p, choir__move_schedule *s, bool from_all, bool to_all)
{
    const bool root = p->rank == p->root;
    const bool parts_in = p->kind == CHOIR__SCATTER || p->kind == CHOIR__ALL_TO_ALL;
    const bool parts_out = p->kind != CHOIR__SCATTER;
    choir__slice one = {0, p->count};
    for (int i = 1; i < p->world && (to_all || root); i++) {
        choir__slice to = parts_out ? part(p, p->out_counts, peer(p, i)) : one;
        if (from_all || peer(p, i) == p->root)
            choir__add_receive(s, 0, peer(p, i), choir__out(to.at), to.count);
    }
    for (int i = 1; i < p->world && (from_all || root); i++) {
        choir__slice from = parts_in ? part(p, p->in_counts, peer(p, i)) : one;
        if (to_all || peer(p, i) == p->root)
            choir__add_send(s, 0, peer(p, i), choir__in(from.at), from.count);
    }
    if (p->in_place || (!root && !(from_all && to_all)))
        return;
    choir__slice from = parts_in ? part(p, p->in_counts, p->rank) : one;
    choir__slice to = parts_out ? part(p, p->out_counts, p->rank) : one;
    choir__add_copy(s, 0, choir__in(from.at), choir__out(to.at), to.count);
}

/* In place, received data must not overwrite data that have yet to be sent. */
static bool all_to_all_in_place(const choir__pattern_collective *p, choir__move_schedule *s)
{
    if (p->in_counts || p->out_counts)
        return false;
    choir__chunk_span came = choir__add_scratch(s, p->count * p->world);
    for (int i = 1; i < p->world; i++)
        choir__add_receive(
            s, 0, peer(p, i), choir__past(came, peer(p, i) * p->count), p->count);
    for (int i = 1; i < p->world; i++)
        choir__add_send(s, 0, peer(p, i), choir__in(peer(p, i) * p->count), p->count);
    for (int i = 1; i < p->world; i++) {
        int64_t at = peer(p, i) * p->count;
        choir__add_copy(s, 0, choir__past(came, at), choir__out(at), p->count);
    }
    return true;
}

bool choir__pattern_exchange(const choir__pattern_collective *p, choir__move_schedule *s)
{
    switch (p->kind) {
    case CHOIR__ALL_REDUCE:
    case CHOIR__TREE_REDUCE: all_reduce(p, s); return true;
    case CHOIR__REDUCE: reduce(p, s); return true;
    case CHOIR__REDUCE_SCATTER: reduce_shares(p, s, 0, PARTS, choir__out(0)); return true;
    case CHOIR__BROADCAST: broadcast(p, s); return true;
    case CHOIR__GATHER: straight(p, s, true, false); return true;
    case CHOIR__ALL_GATHER: straight(p, s, true, true); return true;
    case CHOIR__SCATTER: straight(p, s, false, true); return true;
    case CHOIR__ALL_TO_ALL:
        if (p->in_place)
            return all_to_all_in_place(p, s);
        straight(p, s, true, true);
        return true;
    default: return false;
    }
}
