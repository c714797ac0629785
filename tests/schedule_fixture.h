/* A machine of up to 64 ranks that runs schedules without any I/O, and checks these
 * promises:
 *
 *   - both sides of a message have it in rounds of the same number (so ranks cannot wait in a
 *     circle), with the same count and in the same order;
 *   - no memory of a message is used by another message of the same round;
 *   - only the buffers are written; IN and the parts of other ranks do not change.
 *
 * At the end the results are compared with the expected ones. */
#ifndef CHOIR_TESTS_SCHEDULE_FIXTURE_H
#define CHOIR_TESTS_SCHEDULE_FIXTURE_H
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "base/base.h"
#include "comm/pattern/build.h"

enum { WORLD = 64, SOURCES = 1024 };

typedef struct machine { /* one rank */
    float *memory;       /* in, out, scratch, one after another; in and out overlap in place */
    int *touched;        /* by a receive (round + 1) or a send (-(round + 1)) */
    int64_t at[3], room[3];
    float *before; /* IN as it was */
    choir__move_schedule schedule;
    int next;
} machine;

typedef struct world {
    choir__pattern_collective collective;
    machine ranks[WORLD];
    bool ordered;     /* the operation that is neither commutative nor associative; else sums of
                         whole numbers */
    float *reduction; /* the expected result: (count), or in parts (world, count) */
} world;

static float apply(const world *w, float lower, float higher)
{
    return w->ordered ? lower * 0.75f - higher * 0.5f : lower + higher;
}

static float rescaled(const world *w, float x)
{
    return w->collective.kind == CHOIR__TREE_REDUCE ? x * 0.125f
                                                    : x / (float)w->collective.world;
}

/* --- inputs --- */

static bool has_parts(choir__kind kind)
{
    return kind == CHOIR__GATHER || kind == CHOIR__ALL_GATHER || kind == CHOIR__SCATTER ||
           kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__ALL_TO_ALL;
}

static bool parts_in(choir__kind kind)
{
    return kind == CHOIR__SCATTER || kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__ALL_TO_ALL;
}

static bool parts_out(choir__kind kind)
{
    return kind == CHOIR__GATHER || kind == CHOIR__ALL_GATHER || kind == CHOIR__ALL_TO_ALL;
}

static int64_t sum_of(const int64_t *counts, int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += counts[i];
    return sum;
}

static bool reduces(choir__kind kind)
{
    return kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE ||
           kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__TREE_REDUCE;
}

/* Returns the size of this rank's IN or OUT in elements; 0 if it has none. */
static int64_t room_in(const choir__pattern_collective *p)
{
    bool root = p->rank == p->root;
    choir__node nodes[CHOIR__MAX_NODES];
    if (p->in_counts)
        return sum_of(p->in_counts, p->world);
    if (p->kind == CHOIR__TREE_REDUCE) {
        int n = choir__pattern_nodes(p, p->rank, nodes);
        return choir__max((n - 1) * p->node_stride + p->count, p->count);
    }
    if ((p->kind == CHOIR__SCATTER || p->kind == CHOIR__BROADCAST) && !root)
        return 0;
    return parts_in(p->kind) ? p->count * p->world : p->count;
}

static int64_t room_out(const choir__pattern_collective *p)
{
    bool root = p->rank == p->root;
    if (p->out_counts)
        return sum_of(p->out_counts, p->world);
    if ((p->kind == CHOIR__GATHER || p->kind == CHOIR__REDUCE) && !root)
        return 0;
    return parts_out(p->kind) ? p->count * p->world : p->count;
}

static float value(const world *w, int rank, int64_t i)
{
    uint32_t z = (uint32_t)(rank * 2654435761u + (uint32_t)i * 40503u + 12345u);
    z ^= z >> 13;
    z *= 1274126177u;
    return w->ordered ? (float)(int32_t)z * 1e-7f : (float)(z % 17);
}

static void machine_init(world *w, int rank)
{
    machine *m = &w->ranks[rank];
    choir__pattern_collective p = w->collective;
    p.rank = rank;
    ok(choir__move_schedule_make(&p, &m->schedule));
    m->next = 0;
    int64_t in = room_in(&p), out = room_out(&p), lines = m->schedule.scratch;
    m->room[CHOIR__IN] = in, m->room[CHOIR__OUT] = out, m->room[CHOIR__SCRATCH] = lines;
    m->at[CHOIR__IN] = 0, m->at[CHOIR__OUT] = in;
    if (p.in_place && in && out) { /* the smaller one is a part of the larger */
        int64_t part = parts_in(p.kind) == parts_out(p.kind) ? 0 : rank * p.count;
        m->at[CHOIR__IN] = parts_out(p.kind) ? part : 0;
        m->at[CHOIR__OUT] = parts_in(p.kind) ? part : 0;
    }
    m->at[CHOIR__SCRATCH] = in + out;
    size_t room = (size_t)(in + out + lines);
    m->memory = choir__alloc((room + 1) * sizeof *m->memory);
    m->touched = choir__calloc(room + 1, sizeof *m->touched);
    m->before = choir__alloc(((size_t)in + 1) * sizeof *m->before);
    for (size_t i = 0; i < room; i++)
        m->memory[i] = NAN;
    for (int64_t i = 0; i < in; i++)
        m->before[i] = m->memory[m->at[CHOIR__IN] + i] = value(w, rank, i);
}

static void machine_free(machine *m)
{
    free(m->memory);
    free(m->touched);
    free(m->before);
    choir__move_schedule_free(&m->schedule);
}

/* --- running --- */

static int64_t place(const machine *m, choir__chunk_span span, int64_t count)
{
    assert_true(span.at >= 0 && span.at + count <= m->room[span.buffer]);
    return m->at[span.buffer] + span.at;
}

static void touch(machine *m, const choir__move *move)
{
    bool receive = move->kind == CHOIR__MOVE_RECEIVE;
    int64_t at = place(m, receive ? move->to : move->from, move->count);
    int sent = -(move->round + 1), received = move->round + 1;
    for (int64_t i = at; i < at + move->count; i++) {
        assert_int_not_equal(m->touched[i], received);
        assert_false(receive && m->touched[i] == sent);
        m->touched[i] = receive ? received : sent;
    }
}

static bool talks(const choir__move *move)
{
    return move->kind == CHOIR__MOVE_SEND || move->kind == CHOIR__MOVE_RECEIVE;
}

/* Returns the next message of `kind` with peer in a round, after `from`; NULL: none. */
static const choir__move *message(
    const machine *m, int from, int round, int peer, choir__move_kind kind, int *found)
{
    for (int i = from; i < m->schedule.count && m->schedule.moves[i].round == round; i++)
        if (m->schedule.moves[i].kind == kind && m->schedule.moves[i].peer == peer) {
            *found = i;
            return &m->schedule.moves[i];
        }
    return NULL;
}

/* Delivers all sends of a round, each to the matching receive in order. */
static void deliver(world *w, int round)
{
    int sent = 0, received = 0;
    for (int from = 0; from < w->collective.world; from++) {
        machine *m = &w->ranks[from];
        int seen[WORLD]; /* per peer: index at which to continue */
        for (int r = 0; r < w->collective.world; r++)
            seen[r] = w->ranks[r].next;
        for (int i = m->next; i < m->schedule.count; i++) {
            const choir__move *send = &m->schedule.moves[i];
            if (send->round != round || !talks(send))
                break;
            touch(m, send);
            received += send->kind == CHOIR__MOVE_RECEIVE;
            if (send->kind != CHOIR__MOVE_SEND)
                continue;
            assert_true(
                send->peer != from && send->peer >= 0 && send->peer < w->collective.world);
            machine *peer = &w->ranks[send->peer];
            int at = 0;
            const choir__move *receive =
                message(peer, seen[send->peer], round, from, CHOIR__MOVE_RECEIVE, &at);
            assert_non_null(receive);
            assert_int_equal(receive->count, send->count);
            memcpy(&peer->memory[place(peer, receive->to, receive->count)],
                &m->memory[place(m, send->from, send->count)],
                (size_t)send->count * sizeof(float));
            seen[send->peer] = at + 1;
            sent++;
        }
    }
    assert_int_equal(sent, received);
}

/* A run of blocks in order, as comm/reduce adds them. */
static float blocks(
    const world *w, const choir__reduce_source *sources, const float *values, int n)
{
    choir__node nodes[SOURCES];
    float sums[SOURCES];
    int top = 0;
    sums[0] = NAN;
    for (int i = 0; i < n; i++) {
        assert_true(i == 0 || sources[i].node.start ==
                                  sources[i - 1].node.start + sources[i - 1].node.leaves);
        nodes[top] = sources[i].node;
        sums[top++] = values[i];
        while (
            top > 1 && (i == n - 1 || choir__tree_siblings(nodes[top - 2], nodes[top - 1]))) {
            sums[top - 2] = apply(w, sums[top - 2], sums[top - 1]);
            nodes[top - 2].leaves += nodes[top - 1].leaves;
            top--;
        }
    }
    return sums[0];
}

static void reduce(const world *w, machine *m, const choir__move *move)
{
    const choir__reduce_source *sources = &m->schedule.sources[move->first_source];
    float values[SOURCES];
    int64_t to = place(m, move->to, move->count);
    assert_true(move->sources > 0 && move->sources <= SOURCES);
    assert_true(move->first_source + move->sources <= m->schedule.source_count);
    for (int64_t i = 0; i < move->count; i++) {
        for (int k = 0; k < move->sources; k++) {
            int64_t at = place(m, sources[k].at, move->count);
            assert_true(at == to || at + move->count <= to || to + move->count <= at);
            values[k] = m->memory[at + i];
        }
        m->memory[to + i] = blocks(w, sources, values, move->sources);
    }
}

static void local(const world *w, machine *m, const choir__move *move)
{
    if (move->kind == CHOIR__MOVE_REDUCE) {
        reduce(w, m, move);
        return;
    }
    float *to = &m->memory[place(m, move->to, move->count)], *from = to;
    if (move->kind != CHOIR__MOVE_RESCALE) {
        from = &m->memory[place(m, move->from, move->count)];
        assert_true(from + move->count <= to || to + move->count <= from);
    }
    for (int64_t i = 0; i < move->count; i++)
        to[i] = move->kind == CHOIR__MOVE_COPY      ? from[i]
                : move->kind == CHOIR__MOVE_RESCALE ? rescaled(w, to[i])
                : move->swap                        ? apply(w, to[i], from[i])
                                                    : apply(w, from[i], to[i]);
}

static void run(world *w)
{
    int rounds = 0;
    for (int r = 0; r < w->collective.world; r++)
        rounds = (int)choir__max(rounds, w->ranks[r].schedule.rounds);
    for (int round = 0; round < rounds; round++) {
        deliver(w, round);
        for (int r = 0; r < w->collective.world; r++) {
            machine *m = &w->ranks[r];
            for (; m->next < m->schedule.count; m->next++) {
                const choir__move *move = &m->schedule.moves[m->next];
                assert_true(move->count > 0 && move->round >= round);
                if (move->round > round)
                    break;
                if (talks(move)) /* messages come first */
                    assert_true(m->next == 0 || talks(move - 1) || move[-1].round < round);
                else
                    local(w, m, move);
            }
        }
    }
    for (int r = 0; r < w->collective.world; r++)
        assert_int_equal(w->ranks[r].next, w->ranks[r].schedule.count);
}

/* --- expected results --- */

/* Returns an element of the rank's IN as it was before the run. */
static float given(const world *w, int rank, int64_t i)
{
    return w->ranks[rank].before[i];
}

/* All ranks' nodes in the order of the tree. */
typedef struct leaves {
    int rank[SOURCES], index[SOURCES];
    choir__node node[SOURCES];
    int count, next;
} leaves;

static void leaves_of(const world *w, leaves *l)
{
    choir__node nodes[CHOIR__MAX_NODES];
    l->count = 0;
    for (int r = 0; r < w->collective.world; r++) {
        int n = choir__pattern_nodes(&w->collective, r, nodes);
        for (int k = 0; k < n; k++, l->count++) {
            assert_true(l->count < SOURCES);
            l->rank[l->count] = r, l->index[l->count] = k, l->node[l->count] = nodes[k];
        }
    }
}

/* Returns the sum by definition: leaves [lo, lo + n) are one rank's node, or the sum of two
 * halves. */
static float tree(const world *w, leaves *l, int64_t lo, int64_t n, int64_t i)
{
    const int k = l->next;
    if (l->node[k].start == lo && l->node[k].leaves == n) {
        l->next++;
        return given(w, l->rank[k], l->index[k] * w->collective.node_stride + i);
    }
    int64_t half = 1;
    while (2 * half < n)
        half *= 2;
    float lower = tree(w, l, lo, half, i);
    return apply(w, lower, tree(w, l, lo + half, n - half, i));
}

/* Returns the sum in the ring's order: chunk c of an all-reduce begins with rank c, and that of
 * a reduce-scatter ends with it. */
static float chain(const world *w, int first, int64_t i)
{
    const int size = w->collective.world;
    float sum = given(w, first % size, i);
    for (int k = 1; k < size; k++)
        sum = apply(w, sum, given(w, (first + k) % size, i));
    return sum;
}

static void reduce_all(world *w)
{
    static leaves l;
    const choir__pattern_collective *p = &w->collective;
    const bool parts = p->kind == CHOIR__REDUCE_SCATTER;
    const int64_t count = parts ? p->count * p->world : p->count;
    const int64_t total = p->kind == CHOIR__TREE_REDUCE ? p->leaves : p->world;
    int chunk = 0;
    leaves_of(w, &l);
    w->reduction = choir__alloc(((size_t)count + 1) * sizeof *w->reduction);
    for (int64_t i = 0; i < count; i++) {
        choir__slice all = {0, p->count}, slice;
        while (slice = choir__slice_of(all, p->align, chunk, p->world),
            !parts && i >= slice.at + slice.count)
            chunk++;
        l.next = 0;
        float sum = p->algorithm == CHOIR__RING
                        ? chain(w, parts ? (int)(i / p->count) + 1 : chunk, i)
                        : tree(w, &l, 0, total, i);
        bool rescale = p->mean || p->kind == CHOIR__TREE_REDUCE;
        w->reduction[i] = rescale ? rescaled(w, sum) : sum;
    }
}

/* Returns element j of an uneven all-to-all's result: finds its source rank and its index
 * there. */
static float uneven(const world *w, int rank, int64_t j)
{
    int64_t counts[WORLD];
    int from = 0;
    for (; j >= (from * 3 + rank) % 5; from++)
        j -= (from * 3 + rank) % 5;
    for (int r = 0; r < rank; r++)
        counts[r] = (from * 3 + r) % 5;
    return given(w, from, sum_of(counts, rank) + j);
}

static float wanted(const world *w, int rank, int64_t i)
{
    const choir__pattern_collective *p = &w->collective;
    const int64_t part = p->count ? i / p->count : 0, j = p->count ? i % p->count : 0;
    switch (p->kind) {
    case CHOIR__BROADCAST: return given(w, p->root, i);
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER: return given(w, (int)part, j);
    case CHOIR__SCATTER: return given(w, p->root, rank * p->count + i);
    case CHOIR__ALL_TO_ALL:
        return p->out_counts ? uneven(w, rank, i) : given(w, (int)part, rank * p->count + j);
    case CHOIR__REDUCE_SCATTER: return w->reduction[rank * p->count + i];
    default: return w->reduction[i];
    }
}

static void check(const world *w)
{
    for (int r = 0; r < w->collective.world; r++) {
        const machine *m = &w->ranks[r];
        int64_t out = m->at[CHOIR__OUT], end = out + m->room[CHOIR__OUT];
        for (int64_t i = out; i < end; i++) {
            float want = wanted(w, r, i - out);
            if (memcmp(&want, &m->memory[i], sizeof want) != 0)
                fail_msg("%s %d, world %d, count %lld, root %d, in place %d, align %d: rank "
                         "%d has %g at %lld, not %g",
                    choir__algorithm_name(w->collective.algorithm), (int)w->collective.kind,
                    w->collective.world, (long long)w->collective.count, w->collective.root,
                    w->collective.in_place, w->collective.align, r, (double)m->memory[i],
                    (long long)(i - out), (double)want);
        }
        for (int64_t i = 0; i < m->room[CHOIR__IN]; i++) {
            int64_t at = m->at[CHOIR__IN] + i;
            assert_true((at >= out && at < end) || m->memory[at] == m->before[i]);
        }
    }
}

static void run_and_check(const choir__pattern_collective *collective)
{
    static world w;
    w = (world){
        .collective = *collective, .ordered = collective->algorithm != CHOIR__DOUBLE_TREE};
    for (int r = 0; r < collective->world; r++)
        machine_init(&w, r);
    run(&w);
    if (reduces(collective->kind))
        reduce_all(&w);
    check(&w);
    free(w.reduction);
    for (int r = 0; r < collective->world; r++)
        machine_free(&w.ranks[r]);
}

#endif
