/* Schedules are made once and kept, because a training run repeats the same few collectives.
 * This file also manages the other state of comm/message in an engine: memory that grows to the
 * size that calls have requested. */
#include "comm/message/message.h"

#include <stdlib.h>
#include <sys/mman.h>

choir__executor *choir__executor_of(choir__engine *engine)
{
    if (!engine->executor) {
        choir__executor *x = engine->executor = choir__calloc(1, sizeof *x);
        x->nodes = choir__calloc((size_t)engine->world, sizeof *x->nodes);
        for (int r = 0; r < engine->world && engine->members; r++)
            x->nodes[r] = engine->members[r].node;
    }
    return engine->executor;
}

static void forget(char *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

void choir__executor_free(choir__executor *x)
{
    if (!x)
        return;
    for (int i = 0; i < x->kept_count; i++)
        choir__move_schedule_free(&x->kept[i].schedule);
    forget(x->memory, x->memory_bytes);
    forget(x->staging, x->staging_bytes);
    free(x->nodes);
    free(x->requests);
    free(x->source_nodes);
    free(x->sources);
    free(x);
}

/* --- memory --- */

/* Grows the memory *at of *has bytes to at least `bytes`; contents are lost. */
static char *grow(choir__engine *engine, size_t bytes, char **at, size_t *has)
{
    if (bytes <= *has)
        return *at;
    char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        choir__engine_spread(engine, CHOIR_ERR_MEMORY,
            "rank %d cannot have the %zu bytes that messages need on their way",
            choir__engine_number(engine, engine->rank), bytes);
        return NULL;
    }
    forget(*at, *has);
    *at = memory;
    *has = bytes;
    return memory;
}

char *choir__executor_memory(choir__engine *engine, size_t bytes)
{
    choir__executor *x = engine->executor;
    return grow(engine, bytes, &x->memory, &x->memory_bytes);
}

char *choir__executor_staging(choir__engine *engine, size_t bytes)
{
    choir__executor *x = choir__executor_of(engine);
    return grow(engine, bytes, &x->staging, &x->staging_bytes);
}

choir__request *choir__executor_requests(choir__executor *x, int count)
{
    if (count > x->request_room) {
        x->request_room = count;
        x->requests = choir__realloc(x->requests, (size_t)count * sizeof *x->requests);
    }
    return x->requests;
}

/* --- schedules --- */

static bool same(const choir__pattern_collective *a, const choir__pattern_collective *b)
{
    return a->kind == b->kind && a->algorithm == b->algorithm && a->root == b->root &&
           a->count == b->count && a->leaves == b->leaves && a->node_stride == b->node_stride &&
           a->align == b->align && a->in_place == b->in_place && a->mean == b->mean &&
           !a->in_counts && !b->in_counts;
}

/* Computes the most messages of a round, and makes room for the sources of the largest
 * reduction. */
static void measure(choir__executor *x, choir__message_kept *k)
{
    const choir__move_schedule *s = &k->schedule;
    int messages = 0, round = -1, sources = 0;
    k->most = 0;
    for (int i = 0; i < s->count; i++) {
        const choir__move *m = &s->moves[i];
        if (m->round != round)
            messages = 0, round = m->round;
        messages += m->kind == CHOIR__MOVE_SEND || m->kind == CHOIR__MOVE_RECEIVE;
        k->most = messages > k->most ? messages : k->most;
        if (m->kind == CHOIR__MOVE_REDUCE && m->sources > sources)
            sources = m->sources;
    }
    if (sources > x->source_room) {
        x->source_room = sources;
        x->source_nodes =
            choir__realloc(x->source_nodes, (size_t)sources * sizeof(choir__node));
        x->sources = choir__realloc(x->sources, (size_t)sources * sizeof(char *));
    }
}

/* Counts the rounds of the rank that has the most. */
static choir_status count_rounds(
    const choir__pattern_collective *collective, choir__message_kept *k)
{
    k->rounds = k->schedule.rounds;
    for (int r = 0; r < collective->world; r++) {
        choir__move_schedule theirs = {0};
        choir__pattern_collective other = *collective;
        other.rank = r;
        choir_status status = choir__move_schedule_make(&other, &theirs);
        k->rounds = theirs.rounds > k->rounds ? theirs.rounds : k->rounds;
        choir__move_schedule_free(&theirs);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

/* Returns a free entry, or the least recently used one. */
static choir__message_kept *place(choir__executor *x)
{
    choir__message_kept *oldest = &x->kept[0];
    if (x->kept_count < CHOIR__MESSAGE_SCHEDULES)
        return &x->kept[x->kept_count++];
    for (int i = 1; i < CHOIR__MESSAGE_SCHEDULES; i++)
        if (x->kept[i].used < oldest->used)
            oldest = &x->kept[i];
    choir__move_schedule_free(&oldest->schedule);
    return oldest;
}

choir_status choir__message_schedule(choir__engine *engine,
    const choir__pattern_collective *collective, bool everywhere,
    const choir__message_kept **kept)
{
    choir__executor *x = engine->executor;
    choir__message_kept *k = NULL;
    for (int i = 0; i < x->kept_count && !k; i++)
        if (same(&x->kept[i].collective, collective))
            k = &x->kept[i];
    if (!k) {
        choir__move_schedule made = {0};
        choir_status status = choir__move_schedule_make(collective, &made);
        if (status != CHOIR_OK) {
            choir__move_schedule_free(&made);
            return status;
        }
        k = place(x);
        *k = (choir__message_kept){.collective = *collective, .schedule = made};
        measure(x, k);
    }
    k->used = ++x->uses;
    *kept = k;
    return everywhere && !k->rounds ? count_rounds(collective, k) : CHOIR_OK;
}
