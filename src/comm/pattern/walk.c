/* Walking through an algorithm: all ranks' schedules run side by side on symbols.
 *
 * A memory cell stands for a chunk of data; it contains the chunk's number and the set of ranks
 * whose data are in it. Sends copy cells, additions unite sets. A chunk is the largest piece
 * that no move cuts: the greatest common divisor of all places and counts.
 *
 * A rank's partial sums may be in scratch. Therefore the state of a chunk on a rank is the
 * fullest cell of that chunk anywhere in the rank's memory. */
#include <choir/pattern.h>

#include <stdlib.h>
#include <string.h>

#include "comm/pattern/build.h"
#include "comm/pattern/walk.h"

/* Elements: EACH per rank, enough that no algorithm takes its way for small data; STREAMED for
 * collectives that are streamed in pieces of 1024, eight of them. */
enum { EACH = 4096, STREAMED = 8 * 1024, RANKS_MAX = 64 };

typedef struct cell {
    int chunk;      /* -1: empty */
    uint64_t parts; /* the ranks whose data are in it */
} cell;

/* One rank. In place, OUT and IN overlap; scratch follows them. */
typedef struct walker {
    choir__move_schedule schedule;
    cell *cells;
    int64_t at[3]; /* begin of each buffer, in cells */
    int count, next;
} walker;

/* A message of the current round. */
typedef struct letter {
    int from, to;
    cell *cells;
    int64_t count;
} letter;

typedef struct walk {
    choir__pattern_collective collective;
    int *nodes;
    int64_t unit; /* elements per cell */
    walker ranks[RANKS_MAX];
    letter *letters;
    int letter_count;
    choir_pattern *pattern;
} walk;

/* --- the initial state --- */

static bool cut_in(choir__kind kind)
{
    return kind == CHOIR__SCATTER || kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__ALL_TO_ALL;
}

static bool cut_out(choir__kind kind)
{
    return kind == CHOIR__GATHER || kind == CHOIR__ALL_GATHER || kind == CHOIR__ALL_TO_ALL;
}

static int64_t divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t largest_unit(const walk *w)
{
    int64_t unit = w->collective.count;
    for (int r = 0; r < w->collective.world; r++) {
        const choir__move_schedule *s = &w->ranks[r].schedule;
        for (int i = 0; i < s->count; i++)
            unit = divisor(divisor(divisor(unit, s->moves[i].count), s->moves[i].from.at),
                s->moves[i].to.at);
        for (int i = 0; i < s->source_count; i++)
            unit = divisor(unit, s->sources[i].at.at);
        unit = divisor(unit, s->scratch);
    }
    return unit;
}

static bool has_input(const choir__pattern_collective *p, int rank)
{
    return rank == p->root || (p->kind != CHOIR__SCATTER && p->kind != CHOIR__BROADCAST);
}

static void walker_init(walk *w, int rank)
{
    const choir__pattern_collective *p = &w->collective;
    walker *m = &w->ranks[rank];
    const int64_t part = p->count / w->unit, all = part * p->world;
    const int64_t in = cut_in(p->kind) ? all : part, out = cut_out(p->kind) ? all : part;
    m->at[CHOIR__OUT] = in;
    m->at[CHOIR__SCRATCH] = in + out;
    m->count = (int)(in + out + m->schedule.scratch / w->unit);
    m->cells = choir__calloc((size_t)m->count + 1, sizeof *m->cells);
    for (int i = 0; i < m->count; i++)
        m->cells[i].chunk = -1;
    /* Data that become a part of a whole get their number in the whole. */
    const int64_t first = cut_out(p->kind) ? rank * in : 0;
    for (int64_t i = 0; i < in && has_input(p, rank); i++)
        m->cells[i] = (cell){(int)(first + i), UINT64_C(1) << rank};
}

/* --- a round --- */

static cell *cells_at(const walk *w, int rank, choir__chunk_span span)
{
    walker *m = (walker *)&w->ranks[rank];
    return &m->cells[m->at[span.buffer] + span.at / w->unit];
}

static void post(walk *w, int rank, const choir__move *move)
{
    CHOIR__GROW(w->letters, w->letter_count);
    letter *l = &w->letters[w->letter_count++];
    *l = (letter){rank, move->peer, NULL, move->count / w->unit};
    l->cells = choir__alloc((size_t)l->count * sizeof *l->cells);
    memcpy(l->cells, cells_at(w, rank, move->from), (size_t)l->count * sizeof *l->cells);
}

/* Records a message: neighboring chunks are one move, as long as all are sums or all are
 * parts. */
static void record(walk *w, const letter *l)
{
    choir_pattern *p = w->pattern;
    const uint64_t whole = UINT64_MAX >> (64 - w->collective.world);
    const bool sums = choir__pattern_reduces(&w->collective);
    for (int64_t i = 0; i < l->count; i++) {
        bool added = sums && l->cells[i].parts != whole;
        choir_pattern_move *last = i ? &p->moves[p->move_count - 1] : NULL;
        if (last && last->added == added && l->cells[i].chunk == last->chunk + last->chunks) {
            last->chunks++;
            continue;
        }
        CHOIR__GROW(p->moves, p->move_count);
        p->moves[p->move_count++] =
            (choir_pattern_move){p->steps, l->from, l->to, l->cells[i].chunk, 1, added};
    }
}

static void deliver(walk *w, int rank, const choir__move *move)
{
    for (int i = 0; i < w->letter_count; i++) {
        letter *l = &w->letters[i];
        if (l->from != move->peer || l->to != rank || !l->cells)
            continue;
        memcpy(cells_at(w, rank, move->to), l->cells, (size_t)l->count * sizeof *l->cells);
        record(w, l);
        free(l->cells);
        l->cells = NULL;
        return;
    }
}

static void unite(cell *to, const cell *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i].parts |= from[i].parts;
}

static void add_up(const walk *w, int rank, const choir__move *move)
{
    const choir__move_schedule *s = &w->ranks[rank].schedule;
    const int64_t count = move->count / w->unit;
    cell *sum = choir__calloc((size_t)count, sizeof *sum);
    for (int k = 0; k < move->sources; k++) {
        const cell *source = cells_at(w, rank, s->sources[move->first_source + k].at);
        unite(sum, source, count);
        for (int64_t i = 0; i < count; i++)
            sum[i].chunk = source[i].chunk;
    }
    memcpy(cells_at(w, rank, move->to), sum, (size_t)count * sizeof *sum);
    free(sum);
}

static void run_local(const walk *w, int rank, const choir__move *move)
{
    const int64_t count = move->count / w->unit;
    if (move->kind == CHOIR__MOVE_COPY)
        memmove(cells_at(w, rank, move->to), cells_at(w, rank, move->from),
            (size_t)count * sizeof(cell));
    else if (move->kind == CHOIR__MOVE_COMBINE)
        unite(cells_at(w, rank, move->to), cells_at(w, rank, move->from), count);
    else if (move->kind == CHOIR__MOVE_REDUCE)
        add_up(w, rank, move);
}

/* Runs the moves of a round of one kind: sends, receives, or the others. */
static void run_part(walk *w, int round, choir__move_kind kind)
{
    for (int r = 0; r < w->collective.world; r++) {
        walker *m = &w->ranks[r];
        for (int i = m->next; i < m->schedule.count; i++) {
            const choir__move *move = &m->schedule.moves[i];
            if (move->round != round)
                break;
            if (kind == CHOIR__MOVE_SEND && move->kind == kind)
                post(w, r, move);
            else if (kind == CHOIR__MOVE_RECEIVE && move->kind == kind)
                deliver(w, r, move);
            else if (kind == CHOIR__MOVE_COPY)
                run_local(w, r, move);
        }
    }
}

static void run_round(walk *w, int round)
{
    run_part(w, round, CHOIR__MOVE_SEND);
    bool busy = w->letter_count > 0;
    run_part(w, round, CHOIR__MOVE_RECEIVE);
    run_part(w, round, CHOIR__MOVE_COPY);
    w->letter_count = 0;
    for (int r = 0; r < w->collective.world; r++) {
        walker *m = &w->ranks[r];
        while (m->next < m->schedule.count && m->schedule.moves[m->next].round == round)
            m->next++;
    }
    w->pattern->steps += busy;
}

/* Appends the current state of all ranks after the states of earlier steps. */
static void look(walk *w)
{
    choir_pattern *p = w->pattern;
    const size_t each = (size_t)p->ranks * (size_t)p->chunks;
    p->parts = choir__realloc(p->parts, ((size_t)p->steps + 1) * each * sizeof *p->parts);
    uint64_t *now = p->parts + (size_t)p->steps * each;
    memset(now, 0, each * sizeof *now);
    for (int r = 0; r < p->ranks; r++)
        for (int i = 0; i < w->ranks[r].count; i++) {
            const cell *c = &w->ranks[r].cells[i];
            uint64_t *best = c->chunk < 0 ? NULL : &now[r * p->chunks + c->chunk];
            if (best && __builtin_popcountll(c->parts) > __builtin_popcountll(*best))
                *best = c->parts;
        }
}

/* --- the public side --- */

static choir_status describe(
    walk *w, const char *collective, const char *algorithm, int ranks, int nodes)
{
    choir__pattern_collective *p = &w->collective;
    if (ranks < 1 || ranks > RANKS_MAX)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a pattern: expected 1 to %d ranks, got %d", RANKS_MAX, ranks);
    if (nodes < 1 || nodes > ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a pattern: expected %d ranks on 1 to %d nodes, got %d", ranks, ranks, nodes);
    *p = (choir__pattern_collective){.world = ranks, .align = 1, .nodes = w->nodes};
    if (choir__kind_parse(collective, &p->kind) != CHOIR_OK ||
        choir__algorithm_parse(algorithm, &p->algorithm) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    bool streamed = p->algorithm == CHOIR__DOUBLE_TREE ||
                    (p->algorithm == CHOIR__RING && p->kind == CHOIR__BROADCAST);
    p->count = streamed                              ? STREAMED
               : cut_in(p->kind) || cut_out(p->kind) ? EACH
                                                     : EACH * (int64_t)ranks;
    for (int r = 0; r < ranks; r++)
        w->nodes[r] = (int)((int64_t)r * nodes / ranks);
    for (p->rank = 0; p->rank < ranks; p->rank++) {
        choir_status status = choir__move_schedule_make(p, &w->ranks[p->rank].schedule);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

static void run(walk *w)
{
    choir_pattern *p = w->pattern;
    int rounds = 0;
    w->unit = largest_unit(w);
    p->kind = w->collective.kind;
    p->algorithm = w->collective.algorithm;
    p->ranks = w->collective.world;
    p->chunks = (int)(w->collective.count / w->unit);
    p->chunks *= cut_in(p->kind) ? p->ranks : 1;
    p->chunks *= cut_out(p->kind) ? p->ranks : 1;
    for (int r = 0; r < p->ranks; r++) {
        walker_init(w, r);
        rounds = (int)choir__max(rounds, w->ranks[r].schedule.rounds);
    }
    look(w);
    for (int round = 0; round < rounds; round++) {
        run_round(w, round);
        look(w);
    }
}

choir_status choir_pattern_new(const char *collective, const char *algorithm, int ranks,
    int nodes, choir_pattern **pattern)
{
    if (!collective)
        return choir__missing(__func__, "collective");
    walk *w = choir__calloc(1, sizeof *w);
    w->nodes = choir__calloc(RANKS_MAX, sizeof *w->nodes);
    choir_status status = describe(w, collective, algorithm, ranks, nodes);
    if (status == CHOIR_OK) {
        *pattern = w->pattern = choir__calloc(1, sizeof **pattern);
        run(w);
    }
    for (int r = 0; r < RANKS_MAX; r++) {
        choir__move_schedule_free(&w->ranks[r].schedule);
        free(w->ranks[r].cells);
    }
    free(w->letters);
    free(w->nodes);
    free(w);
    return status;
}

void choir_pattern_free(choir_pattern *pattern)
{
    if (!pattern)
        return;
    free(pattern->moves);
    free(pattern->parts);
    free(pattern);
}

int choir_pattern_ranks(const choir_pattern *pattern)
{
    if (choir__lacks(pattern, __func__, "pattern"))
        return 0;
    return pattern->ranks;
}

int choir_pattern_chunks(const choir_pattern *pattern)
{
    if (choir__lacks(pattern, __func__, "pattern"))
        return 0;
    return pattern->chunks;
}

int choir_pattern_steps(const choir_pattern *pattern)
{
    if (choir__lacks(pattern, __func__, "pattern"))
        return 0;
    return pattern->steps;
}

const choir_pattern_move *choir_pattern_moves(const choir_pattern *pattern, int *count)
{
    if (choir__lacks(pattern, __func__, "pattern"))
        return NULL;
    if (choir__lacks(count, __func__, "count"))
        return NULL;
    *count = pattern->move_count;
    return pattern->moves;
}

uint64_t choir_pattern_parts(const choir_pattern *pattern, int step, int rank, int chunk)
{
    if (choir__lacks(pattern, __func__, "pattern"))
        return 0;
    return pattern->parts[((size_t)step * (size_t)pattern->ranks + (size_t)rank) *
                              (size_t)pattern->chunks +
                          (size_t)chunk];
}
