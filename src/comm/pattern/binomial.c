/* Binomial tree: log2 p rounds, few messages; for small data and many ranks.
 *
 * Neighboring blocks of 1, 2, 4, ... ranks merge; the block at the right edge may be shorter.
 * This is exactly the fixed tree, for any number of ranks. Each block has a keeper, which holds
 * the block's data: the root if it is inside the block, else the lowest rank. Upwards (reduce,
 * gather), the keeper of one half sends its data to the keeper of the other, which then keeps
 * both; downwards (broadcast, scatter), the same pairs communicate in the opposite order. With
 * root 2 of 6:
 *
 *      ranks    0   1   2   3   4   5
 *               0 <-1   2 <-3   4 <-5       round 0
 *               +-----> 2       |           round 1
 *                       2 <-----+           round 2 */
#include "comm/pattern/build.h"

/* Two blocks of ranks that become one: [lo, mid) and [mid, hi). */
typedef struct merge {
    int lo, mid, hi;
    int keeper, other; /* keeper of the merged block; keeper of the other half */
} merge;

static int keeper(int lo, int hi, int root)
{
    return lo <= root && root < hi ? root : lo;
}

/* Finds the merge in which a rank takes part in the round in which blocks of 2^level merge;
 * false: none. */
static bool merge_of(int rank, int world, int root, int level, merge *m)
{
    int size = 1 << level;
    m->lo = rank / (2 * size) * (2 * size);
    m->mid = m->lo + size;
    m->hi = (int)choir__min(m->lo + 2 * size, world);
    if (m->mid >= m->hi)
        return false;
    int left = keeper(m->lo, m->mid, root), right = keeper(m->mid, m->hi, root);
    m->keeper = keeper(m->lo, m->hi, root);
    m->other = m->keeper == left ? right : left;
    return rank == m->keeper || rank == m->other;
}

/* Returns the number of ranks in the largest block that this rank keeps. */
static int largest(const choir__pattern_collective *p, int root)
{
    merge m;
    int ranks = 1;
    for (int level = 0; level < choir__log2_ceil(p->world); level++)
        if (merge_of(p->rank, p->world, root, level, &m) && p->rank == m.keeper)
            ranks = m.hi - m.lo;
    return ranks;
}

/* Adds the reduction over ranks to root. Sums collect in `to`; unless that is in place, a
 * rank's own data come from IN. */
static void reduce_up(const choir__pattern_collective *p, choir__move_schedule *s, int root,
    int64_t count, choir__chunk_span to, bool in_place)
{
    merge m;
    choir__slice all = {0, count};
    choir__sum sum = {in_place ? to : choir__in(0), to, {CHOIR__SCRATCH, s->scratch}};
    const int levels = choir__log2_ceil(p->world);
    if (largest(p, root) > 1)
        choir__add_scratch(s, count);
    for (int round = 0; round < levels; round++) {
        if (!merge_of(p->rank, p->world, root, round, &m))
            continue;
        if (p->rank == m.other) {
            choir__add_send(s, round, m.keeper, sum.own, count);
            return;
        }
        choir__sum_receive(&sum, s, round, m.other, all);
        choir__sum_combine(&sum, s, round, all, p->rank < m.mid);
        sum.own = sum.to;
    }
    if (levels == 0 && !in_place)
        choir__add_copy(s, 0, choir__in(0), to, count);
    if (p->mean && p->rank == root)
        choir__add_rescale(s, (int)choir__max(levels - 1, 0), to, count);
}

/* Adds the broadcast from `from` on the root to OUT on the other ranks, from round `round`
 * on. */
static void broadcast_down(const choir__pattern_collective *p, choir__move_schedule *s,
    int round, int root, choir__chunk_span from, int64_t count)
{
    merge m;
    choir__chunk_span data = p->rank == root ? from : choir__out(0);
    for (int level = choir__log2_ceil(p->world) - 1; level >= 0; level--, round++) {
        if (!merge_of(p->rank, p->world, root, level, &m))
            continue;
        if (p->rank == m.keeper)
            choir__add_send(s, round, m.other, data, count);
        else
            choir__add_receive(s, round, m.keeper, data, count);
    }
}

/* The place where a rank keeps the parts of its largest block, and the first part that is
 * stored there: part 0 if the place is OUT, else the rank's own (only the root keeps parts of
 * lower ranks). */
typedef struct shelf {
    choir__chunk_span at;
    int first;
} shelf;

static choir__chunk_span on(const choir__pattern_collective *p, const shelf *parts, int rank)
{
    return choir__past(parts->at, (rank - parts->first) * p->count);
}

/* Adds the gather of every rank's IN (count) to the root's OUT (world, count). all_out: the
 * other ranks have such a buffer, too, and may write to it. */
static void gather_up(
    const choir__pattern_collective *p, choir__move_schedule *s, int root, bool all_out)
{
    merge m;
    shelf parts = {choir__out(0), 0};
    const bool out = all_out || p->rank == root;
    const int ranks = largest(p, root), levels = choir__log2_ceil(p->world);
    bool own_there = out && p->in_place, leaf = ranks == 1 && p->rank != root;
    if (!out && !leaf)
        parts = (shelf){choir__add_scratch(s, ranks * p->count), p->rank};
    for (int round = 0; round < levels; round++) {
        if (!merge_of(p->rank, p->world, root, round, &m))
            continue;
        bool left = p->rank < m.mid; /* this rank is in the left block */
        int lo = left ? m.lo : m.mid, hi = left ? m.mid : m.hi;
        if (p->rank == m.other) {
            choir__add_send(s, round, m.keeper, leaf ? choir__in(0) : on(p, &parts, lo),
                (hi - lo) * p->count);
            break;
        }
        int there = left ? m.mid : m.lo, count = left ? m.hi - m.mid : m.mid - m.lo;
        choir__add_receive(s, round, m.other, on(p, &parts, there), count * p->count);
        if (!own_there)
            choir__add_copy(s, round, choir__in(0), on(p, &parts, p->rank), p->count);
        own_there = true;
    }
    if (!own_there && p->rank == root) /* the only rank */
        choir__add_copy(s, 0, choir__in(0), choir__out(p->rank * p->count), p->count);
}

/* Adds the scatter of the root's parts at `from` to every rank's OUT (count), from round
 * `round` on. */
static void scatter_down(const choir__pattern_collective *p, choir__move_schedule *s, int round,
    int root, choir__chunk_span from, bool in_place)
{
    merge m;
    shelf parts = {from, 0};
    const int ranks = largest(p, root);
    const bool leaf = ranks == 1 && p->rank != root;
    if (leaf)
        parts = (shelf){choir__out(0), p->rank};
    else if (p->rank != root)
        parts = (shelf){choir__add_scratch(s, ranks * p->count), p->rank};
    for (int level = choir__log2_ceil(p->world) - 1; level >= 0; level--, round++) {
        if (!merge_of(p->rank, p->world, root, level, &m))
            continue;
        bool left = p->rank < m.mid;
        if (p->rank == m.keeper) {
            int there = left ? m.mid : m.lo, count = left ? m.hi - m.mid : m.mid - m.lo;
            choir__add_send(s, round, m.other, on(p, &parts, there), count * p->count);
        } else {
            int lo = left ? m.lo : m.mid, hi = left ? m.mid : m.hi;
            choir__add_receive(s, round, m.keeper, on(p, &parts, lo), (hi - lo) * p->count);
        }
    }
    if (!leaf && !(p->rank == root && in_place))
        choir__add_copy(s, (int)choir__max(s->rounds - 1, 0), on(p, &parts, p->rank),
            choir__out(0), p->count);
}

static void reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    bool root = p->rank == p->root;
    choir__chunk_span to = choir__out(0);
    if (!root)
        to = choir__add_scratch(s, largest(p, p->root) > 1 ? p->count : 0);
    reduce_up(p, s, p->root, p->count, to, root && p->in_place);
}

static void reduce_scatter(const choir__pattern_collective *p, choir__move_schedule *s)
{
    choir__chunk_span sums = choir__add_scratch(s, p->count * p->world);
    reduce_up(p, s, 0, p->count * p->world, sums, false);
    scatter_down(p, s, choir__log2_ceil(p->world), 0, sums, false);
}

bool choir__pattern_binomial(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const int levels = choir__log2_ceil(p->world);
    switch (p->kind) {
    case CHOIR__REDUCE: reduce(p, s); return true;
    case CHOIR__ALL_REDUCE:
        reduce_up(p, s, 0, p->count, choir__out(0), p->in_place);
        broadcast_down(p, s, levels, 0, choir__out(0), p->count);
        return true;
    case CHOIR__REDUCE_SCATTER: reduce_scatter(p, s); return true;
    case CHOIR__BROADCAST:
        broadcast_down(p, s, 0, p->root, choir__in(0), p->count);
        if (p->rank == p->root && !p->in_place)
            choir__add_copy(
                s, (int)choir__max(s->rounds - 1, 0), choir__in(0), choir__out(0), p->count);
        return true;
    case CHOIR__GATHER: gather_up(p, s, p->root, false); return true;
    case CHOIR__SCATTER: scatter_down(p, s, 0, p->root, choir__in(0), p->in_place); return true;
    case CHOIR__ALL_GATHER:
        gather_up(p, s, 0, true);
        broadcast_down(p, s, levels, 0, choir__out(0), p->count * p->world);
        return true;
    default: return false;
    }
}
