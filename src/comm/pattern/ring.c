/* Ring: each rank talks only to its neighbors, and every link always carries the same number of
 * bytes.
 *
 * All-reduce is a reduce-scatter and an all-gather of p - 1 steps each. The data are cut into
 * one chunk per rank; in every step each rank sends a chunk to the next rank and receives
 * another one from the previous rank. In the reduce-scatter the received chunk is added to the
 * rank's own, so a chunk that has gone around is the sum over all ranks; in the all-gather it
 * replaces the rank's own. With three ranks:
 *
 *      chunk      0 1 2      0  1  2        0   1   2           0   1   2
 *      rank 0     a a a      a  a  ca       a   bca ca          abc bca cab
 *      rank 1     b b b  ->  ab b  b    ->  ab  b   cab  -> ->  abc bca cab
 *      rank 2     c c c      c  bc c        abc bc  c           abc bca cab
 *
 * Bytes per rank: 2 (p-1)/p n. Additions have the order of the ring, from the rank of
 * the chunk's number on: deterministic, but not the fixed tree.
 *
 * A broadcast goes along the ring as a stream of pieces. */
#include "comm/pattern/build.h"

/* Pieces of a broadcast: cache lines, and maximum number. */
enum { PIECE = 1024, PIECES_MAX = 4096 };

static int wrap(const choir__pattern_collective *p, int rank)
{
    return ((rank % p->world) + p->world) % p->world;
}

/* Returns chunk c of an all-reduce; for kinds with parts, part c. */
static choir__slice chunk(const choir__pattern_collective *p, int c)
{
    c = wrap(p, c);
    if (p->kind == CHOIR__REDUCE_SCATTER || p->kind == CHOIR__ALL_GATHER)
        return (choir__slice){c * p->count, p->count};
    return choir__slice_of((choir__slice){0, p->count}, p->align, c, p->world);
}

/* Adds the reduce-scatter steps. Sums collect in `to`; rank r ends with the sum of chunk r + 1.
 */
static int reduce_scatter_steps(const choir__pattern_collective *p, choir__move_schedule *s,
    choir__chunk_span to, bool in_place)
{
    choir__sum sum = {in_place ? to : choir__in(0), to, {CHOIR__SCRATCH, 0}};
    if (in_place)
        sum.spare = choir__add_scratch(s, choir__slice_most(p->count, p->align, p->world));
    for (int step = 0; step < p->world - 1; step++) {
        choir__slice goes = chunk(p, p->rank - step), comes = chunk(p, p->rank - step - 1);
        choir__sum_receive(&sum, s, step, wrap(p, p->rank - 1), comes);
        choir__add_send(s, step, wrap(p, p->rank + 1),
            choir__past(step ? sum.to : sum.own, goes.at), goes.count);
        choir__sum_combine(&sum, s, step, comes, false);
    }
    choir__slice mine = chunk(p, p->rank + 1);
    if (p->world == 1 && !in_place)
        choir__add_copy(s, 0, choir__in(0), to, p->count);
    if (p->mean && p->world > 1)
        choir__add_rescale(s, p->world - 2, choir__past(to, mine.at), mine.count);
    return p->world - 1;
}

/* Adds the all-gather steps. Rank r begins with chunk `first`, at `from`; the other chunks are
 * received at their places in OUT. */
static void all_gather_steps(const choir__pattern_collective *p, choir__move_schedule *s,
    int round, int first, choir__chunk_span from)
{
    for (int step = 0; step < p->world - 1; step++) {
        choir__slice goes = chunk(p, first - step), comes = chunk(p, first - step - 1);
        choir__add_receive(
            s, round + step, wrap(p, p->rank - 1), choir__out(comes.at), comes.count);
        choir__add_send(s, round + step, wrap(p, p->rank + 1),
            step ? choir__out(goes.at) : from, goes.count);
    }
}

static void all_reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    int round = reduce_scatter_steps(p, s, choir__out(0), p->in_place);
    all_gather_steps(p, s, round, p->rank + 1, choir__out(chunk(p, p->rank + 1).at));
}

static void all_gather(const choir__pattern_collective *p, choir__move_schedule *s)
{
    all_gather_steps(p, s, 0, p->rank, choir__in(0));
    if (!p->in_place)
        choir__add_copy(s, (int)choir__max(p->world - 2, 0), choir__in(0),
            choir__out(p->rank * p->count), p->count);
}

/* Sums travel through two areas of scratch, one for receiving and one for sending, because IN
 * is read-only. */
static void reduce_scatter(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const int last = p->world - 2;
    choir__chunk_span areas[] = {
        choir__add_scratch(s, p->count), choir__add_scratch(s, p->count)};
    choir__slice all = {0, p->count};
    choir__chunk_span goes = choir__in(chunk(p, p->rank - 1).at);
    for (int step = 0; step <= last; step++) {
        choir__sum sum = {
            choir__in(chunk(p, p->rank - step - 2).at), areas[step % 2], areas[step % 2]};
        if (step == last)
            sum.to = choir__out(0);
        if (step == last && p->in_place)
            sum.own = sum.to;
        choir__sum_receive(&sum, s, step, wrap(p, p->rank - 1), all);
        choir__add_send(s, step, wrap(p, p->rank + 1), goes, p->count);
        choir__sum_combine(&sum, s, step, all, false);
        goes = sum.to;
    }
    if (p->world == 1 && !p->in_place)
        choir__add_copy(s, 0, choir__in(0), choir__out(0), p->count);
    if (p->mean && p->world > 1)
        choir__add_rescale(s, last, choir__out(0), p->count);
}

/* Piece c reaches the rank at distance d from the root in round c + d - 1. */
static void broadcast(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const choir__slice whole = {0, p->count};
    const int distance = wrap(p, p->rank - p->root);
    const int64_t piece = PIECE * (int64_t)p->align;
    const int pieces = (int)choir__min((p->count + piece - 1) / piece, PIECES_MAX);
    for (int round = 0; round < pieces + p->world - 2; round++) {
        int comes = round - distance + 1, goes = round - distance;
        if (distance > 0 && comes >= 0 && comes < pieces) {
            choir__slice c = choir__slice_of(whole, p->align, comes, pieces);
            choir__add_receive(s, round, wrap(p, p->rank - 1), choir__out(c.at), c.count);
        }
        if (distance < p->world - 1 && goes >= 0 && goes < pieces) {
            choir__slice c = choir__slice_of(whole, p->align, goes, pieces);
            choir__add_send(s, round, wrap(p, p->rank + 1),
                distance ? choir__out(c.at) : choir__in(c.at), c.count);
        }
    }
    if (distance == 0 && !p->in_place)
        choir__add_copy(
            s, (int)choir__max(s->rounds - 1, 0), choir__in(0), choir__out(0), p->count);
}

/* Adds the first half of an all-reduce, then sends all chunks to the root at once. */
static void reduce(const choir__pattern_collective *p, choir__move_schedule *s)
{
    const bool root = p->rank == p->root;
    choir__chunk_span sums = root ? choir__out(0) : choir__add_scratch(s, p->count);
    choir__slice mine = chunk(p, p->rank + 1);
    int round = reduce_scatter_steps(p, s, sums, root && p->in_place);
    for (int i = 1; i < p->world && root; i++) {
        choir__slice theirs = chunk(p, p->rank + i + 1);
        choir__add_receive(s, round, wrap(p, p->rank + i), choir__out(theirs.at), theirs.count);
    }
    if (!root)
        choir__add_send(s, round, p->root, choir__past(sums, mine.at), mine.count);
}

bool choir__pattern_ring(const choir__pattern_collective *p, choir__move_schedule *s)
{
    switch (p->kind) {
    case CHOIR__ALL_REDUCE: all_reduce(p, s); return true;
    case CHOIR__REDUCE_SCATTER: reduce_scatter(p, s); return true;
    case CHOIR__ALL_GATHER: all_gather(p, s); return true;
    case CHOIR__BROADCAST: broadcast(p, s); return true;
    case CHOIR__REDUCE: reduce(p, s); return true;
    default: return false;
    }
}
