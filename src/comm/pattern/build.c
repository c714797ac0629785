/* Building schedules: moves are added to a growing list, empty ones are left out, and scratch
 * memory is counted as it is named. Slices of data begin at multiples of an alignment. */
#include "comm/pattern/build.h"

#include <stdlib.h>

/* --- moves --- */

static void add(choir__move_schedule *s, choir__move move)
{
    if (move.count == 0)
        return;
    CHOIR__GROW(s->moves, s->count);
    s->moves[s->count++] = move;
    s->rounds = move.round + 1;
}

void choir__add_send(
    choir__move_schedule *s, int round, int peer, choir__chunk_span from, int64_t count)
{
    add(s, (choir__move){.kind = CHOIR__MOVE_SEND,
               .round = round,
               .peer = peer,
               .from = from,
               .count = count});
}

void choir__add_receive(
    choir__move_schedule *s, int round, int peer, choir__chunk_span to, int64_t count)
{
    add(s, (choir__move){.kind = CHOIR__MOVE_RECEIVE,
               .round = round,
               .peer = peer,
               .to = to,
               .count = count});
}

void choir__add_copy(choir__move_schedule *s, int round, choir__chunk_span from,
    choir__chunk_span to, int64_t count)
{
    add(s,
        (choir__move){
            .kind = CHOIR__MOVE_COPY, .round = round, .from = from, .to = to, .count = count});
}

void choir__add_rescale(choir__move_schedule *s, int round, choir__chunk_span to, int64_t count)
{
    add(s,
        (choir__move){.kind = CHOIR__MOVE_RESCALE, .round = round, .to = to, .count = count});
}

/* to = lower ranks' values op higher ranks' values. swap: `to` holds the lower ranks' values.
 */
static void add_combine(choir__move_schedule *s, int round, choir__chunk_span from,
    choir__chunk_span to, int64_t count, bool swap)
{
    add(s, (choir__move){.kind = CHOIR__MOVE_COMBINE,
               .round = round,
               .from = from,
               .to = to,
               .count = count,
               .swap = swap});
}

void choir__add_source(choir__move_schedule *s, choir__node node, choir__chunk_span at)
{
    CHOIR__GROW(s->sources, s->source_count);
    s->sources[s->source_count++] = (choir__reduce_source){node, at};
}

void choir__add_reduce(choir__move_schedule *s, int round, int first, int sources,
    choir__chunk_span to, int64_t count)
{
    add(s, (choir__move){.kind = CHOIR__MOVE_REDUCE,
               .round = round,
               .to = to,
               .count = count,
               .first_source = first,
               .sources = sources});
}

/* --- places --- */

choir__chunk_span choir__add_scratch(choir__move_schedule *s, int64_t count)
{
    choir__chunk_span span = {CHOIR__SCRATCH, s->scratch};
    s->scratch += count;
    return span;
}

choir__chunk_span choir__in(int64_t at)
{
    return (choir__chunk_span){CHOIR__IN, at};
}

choir__chunk_span choir__out(int64_t at)
{
    return (choir__chunk_span){CHOIR__OUT, at};
}

choir__chunk_span choir__past(choir__chunk_span span, int64_t count)
{
    span.at += count;
    return span;
}

choir__slice choir__slice_of(choir__slice whole, int align, int index, int parts)
{
    int64_t lines = (whole.count + align - 1) / align;
    int64_t lo = choir__min(lines * index / parts * align, whole.count);
    int64_t hi = choir__min(lines * (index + 1) / parts * align, whole.count);
    return (choir__slice){whole.at + lo, hi - lo};
}

int64_t choir__slice_most(int64_t count, int align, int parts)
{
    int64_t lines = (count + align - 1) / align;
    return (lines + parts - 1) / parts * align;
}

int choir__pattern_nodes(
    const choir__pattern_collective *collective, int rank, choir__node nodes[CHOIR__MAX_NODES])
{
    int64_t lo, hi;
    choir__tree_run(
        collective->kind == CHOIR__TREE_REDUCE ? collective->leaves : collective->world, rank,
        collective->world, &lo, &hi);
    return choir__tree_nodes(lo, hi, nodes);
}

bool choir__pattern_reduces(const choir__pattern_collective *collective)
{
    return collective->kind == CHOIR__REDUCE || collective->kind == CHOIR__ALL_REDUCE ||
           collective->kind == CHOIR__REDUCE_SCATTER || collective->kind == CHOIR__TREE_REDUCE;
}

bool choir__pattern_rescales(const choir__pattern_collective *collective)
{
    return collective->mean || collective->kind == CHOIR__TREE_REDUCE;
}

static bool in_place(const choir__sum *sum)
{
    return sum->own.buffer == sum->to.buffer && sum->own.at == sum->to.at;
}

void choir__sum_receive(
    const choir__sum *sum, choir__move_schedule *s, int round, int peer, choir__slice slice)
{
    choir__chunk_span to = in_place(sum) ? sum->spare : choir__past(sum->to, slice.at);
    choir__add_receive(s, round, peer, to, slice.count);
}

void choir__sum_combine(
    const choir__sum *sum, choir__move_schedule *s, int round, choir__slice slice, bool lower)
{
    choir__chunk_span to = choir__past(sum->to, slice.at);
    if (in_place(sum))
        add_combine(s, round, sum->spare, to, slice.count, lower);
    else
        add_combine(s, round, choir__past(sum->own, slice.at), to, slice.count, !lower);
}

bool choir__nodes_contiguous(const choir__pattern_collective *p)
{
    for (int r = 1; r < p->world && p->nodes; r++)
        if (p->nodes[r] != p->nodes[r - 1] && p->nodes[r] != p->nodes[r - 1] + 1)
            return false;
    return true;
}

int choir__log2_ceil(int world)
{
    int rounds = 0;
    while ((INT64_C(1) << rounds) < world)
        rounds++;
    return rounds;
}

void choir__move_schedule_free(choir__move_schedule *schedule)
{
    free(schedule->moves);
    free(schedule->sources);
    *schedule = (choir__move_schedule){0};
}
