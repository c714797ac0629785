/* Recursive halving and doubling: as many bytes as a ring, in 2 log2 p rounds.
 *
 * In round k a rank and its partner at distance 2^k halve the range for which both have sums:
 * each keeps one half and adds the partner's to it. After log2 p rounds each rank has the sum
 * over all ranks of 1/p of the data; the same rounds in reverse order distribute the sums to
 * all ranks. Because the distances grow, the sums of round k are exactly the nodes of the fixed
 * tree with 2^(k+1) leaves.
 *
 * If the number of ranks is not a power of two, the ranks form blocks that are, as in the tree:
 * 7 = 4 + 2 + 1. Each block halves within itself; then the sums are folded from the right: (4 +
 * (2 + 1)). A rank's range depends only on the low bits of its place in the block, so one rank
 * of a larger block, or a few of them, have all of that range. After the folds the first block
 * has the totals, which return the way they came.
 *
 * An all-gather doubles the parts that a rank has, from its own part on and around the end, for
 * any number of ranks. */
#include "comm/pattern/build.h"

typedef struct layout {
    const choir__pattern_collective *p;
    choir__node blocks[CHOIR__MAX_NODES];
    int count, mine; /* number of blocks; this rank's block */
    int index;       /* place in that block */
    int levels;      /* log2 of the first block, the largest */
} layout;

static layout layout_of(const choir__pattern_collective *p)
{
    layout l = {.p = p};
    l.count = choir__tree_nodes(0, p->world, l.blocks);
    while (l.blocks[l.mine].start + l.blocks[l.mine].leaves <= p->rank)
        l.mine++;
    l.index = p->rank - (int)l.blocks[l.mine].start;
    l.levels = choir__log2_ceil((int)l.blocks[0].leaves);
    return l;
}

/* Returns the range that place `index` of a block has after `halvings` halvings. */
static choir__slice range(const choir__pattern_collective *p, int index, int halvings)
{
    choir__slice slice = {0, p->count};
    for (int k = 0; k < halvings; k++)
        slice = choir__slice_of(slice, p->align, index >> k & 1, 2);
    return slice;
}

static int levels_of(const layout *l, int block)
{
    return choir__log2_ceil((int)l->blocks[block].leaves);
}

static int rank_at(const layout *l, int block, int index)
{
    return (int)l->blocks[block].start + index;
}

/* Adds the halving rounds: in round k partners at distance 2^k exchange halves, and each adds
 * up its own. */
static void halve(const layout *l, choir__move_schedule *s, choir__sum *sum)
{
    for (int k = 0; k < levels_of(l, l->mine); k++) {
        int partner = l->index ^ 1 << k;
        choir__slice keeps = range(l->p, l->index, k + 1), goes = range(l->p, partner, k + 1);
        choir__sum_receive(sum, s, k, rank_at(l, l->mine, partner), keeps);
        choir__add_send(
            s, k, rank_at(l, l->mine, partner), choir__past(sum->own, goes.at), goes.count);
        choir__sum_combine(sum, s, k, keeps, !(l->index >> k & 1));
        sum->own = sum->to;
    }
}

/* Adds the folds: block b sends its sums left to block b - 1, the last block first. */
static void fold(const layout *l, choir__move_schedule *s, choir__sum *sum)
{
    const int small = levels_of(l, l->mine);
    if (l->mine + 1 < l->count) {
        int round = l->levels + l->count - 2 - l->mine;
        int from = l->index % (int)l->blocks[l->mine + 1].leaves;
        choir__slice mine = range(l->p, l->index, small);
        choir__sum_receive(sum, s, round, rank_at(l, l->mine + 1, from), mine);
        choir__sum_combine(sum, s, round, mine, true);
        sum->own = sum->to;
    }
    if (l->mine == 0)
        return;
    int round = l->levels + l->count - 1 - l->mine, large = levels_of(l, l->mine - 1);
    for (int i = l->index; i < l->blocks[l->mine - 1].leaves; i += 1 << small) {
        choir__slice theirs = range(l->p, i, large);
        choir__add_send(s, round, rank_at(l, l->mine - 1, i), choir__past(sum->own, theirs.at),
            theirs.count);
    }
}

/* Adds the way back of the totals, to the right. */
static void unfold(const layout *l, choir__move_schedule *s)
{
    const int first = l->levels + l->count - 1, small = levels_of(l, l->mine);
    for (int i = l->index; l->mine && i < l->blocks[l->mine - 1].leaves; i += 1 << small) {
        choir__slice theirs = range(l->p, i, levels_of(l, l->mine - 1));
        choir__add_receive(s, first + l->mine - 1, rank_at(l, l->mine - 1, i),
            choir__out(theirs.at), theirs.count);
    }
    if (l->mine + 1 < l->count) {
        choir__slice mine = range(l->p, l->index, small);
        int to = l->index % (int)l->blocks[l->mine + 1].leaves;
        choir__add_send(
            s, first + l->mine, rank_at(l, l->mine + 1, to), choir__out(mine.at), mine.count);
    }
}

static void all_reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const layout l = layout_of(p);
    const int folds = l.count - 1, back = l.levels + 2 * folds;
    choir__sum sum = {p->in_place ? choir__out(0) : choir__in(0), choir__out(0),
        choir__add_scratch(s, p->world > 1 ? p->count : 0)};
    halve(&l, s, &sum);
    fold(&l, s, &sum);
    choir__slice mine = range(p, l.index, levels_of(&l, l.mine));
    if (p->world == 1 && !p->in_place)
        choir__add_copy(s, 0, choir__in(0), choir__out(0), p->count);
    if (l.mine == 0 && p->mean)
        choir__add_rescale(
            s, (int)choir__max(l.levels + folds - 1, 0), choir__out(mine.at), mine.count);
    unfold(&l, s);
    for (int k = levels_of(&l, l.mine) - 1; k >= 0; k--) {
        int partner = l.index ^ 1 << k, round = back + l.levels - 1 - k;
        choir__slice goes = range(p, l.index, k + 1), comes = range(p, partner, k + 1);
        choir__add_receive(
            s, round, rank_at(&l, l.mine, partner), choir__out(comes.at), comes.count);
        choir__add_send(
            s, round, rank_at(&l, l.mine, partner), choir__out(goes.at), goes.count);
    }
}

/* Sends or receives parts [rank, rank + parts), around the end, in one or two moves. */
static void parts(const choir__pattern_collective *p, choir__move_schedule *s, int round,
    int peer, int rank, int count, bool send)
{
    rank %= p->world;
    int before_end = (int)choir__min(count, p->world - rank);
    for (int i = 0; i < 2; i++) {
        int at = i ? 0 : rank, n = i ? count - before_end : before_end;
        if (send)
            choir__add_send(s, round, peer, choir__out(at * p->count), n * p->count);
        else
            choir__add_receive(s, round, peer, choir__out(at * p->count), n * p->count);
    }
}

static void all_gather(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const int world = p->world;
    for (int round = 0, distance = 1; distance < world; round++, distance *= 2) {
        int count = (int)choir__min(distance, world - distance);
        int from = (p->rank + distance) % world, to = (p->rank + world - distance) % world;
        parts(p, s, round, from, from, count, false);
        if (round == 0)
            choir__add_send(s, round, to, choir__in(0), p->count);
        else
            parts(p, s, round, to, p->rank, count, true);
        if (round == 0 && !p->in_place)
            choir__add_copy(s, round, choir__in(0), choir__out(p->rank * p->count), p->count);
    }
    if (world == 1 && !p->in_place)
        choir__add_copy(s, 0, choir__in(0), choir__out(0), p->count);
}

bool choir__pattern_halving(const choir__pattern_collective *p, choir__move_schedule *s)
{
    switch (p->kind) {
    case CHOIR__ALL_REDUCE: all_reduce(p, s); return true;
    case CHOIR__ALL_GATHER: all_gather(p, s); return true;
    default: return false;
    }
}
