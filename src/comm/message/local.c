/* A rank's work on its own memory: copies, sums, and the conversion between the type of the
 * data and the wider type in which their sums are stored. */
#include "comm/message/message.h"

#include <string.h>

/* Returns the address of an element of a lane. In a lane of blocks (reduce_scatter), block b of
 * the segment is inside block b of the whole data. */
char *choir__lane_at(
    const choir__move_schedule_run *run, const choir__lane *lane, choir__chunk_span span)
{
    int64_t at = span.at;
    char *base = span.buffer == CHOIR__SCRATCH ? lane->scratch
                 : span.buffer == CHOIR__OUT   ? lane->out
                                               : (char *)(uintptr_t)lane->in;
    if (lane->block && span.buffer == CHOIR__IN)
        at = at / lane->count * lane->block + at % lane->count;
    return base + (size_t)at * run->size;
}

/* rescale: the next move rescales the same place, so it is done here. */
static void reduce(const choir__move_schedule_run *run, const choir__lane *lane,
    const choir__move *m, bool rescale)
{
    choir__executor *x = run->executor;
    const choir__reduce_source *sources = lane->kept->schedule.sources + m->first_source;
    char *to = choir__lane_at(run, lane, m->to);
    for (int i = 0; i < m->sources; i++) {
        x->source_nodes[i] = sources[i].node;
        x->sources[i] = choir__lane_at(run, lane, sources[i].at);
    }
    const choir__reduce_task r = {.arith = run->arith,
        .nodes = x->source_nodes,
        .from = x->sources,
        .to = &to,
        .sources = m->sources,
        .outputs = 1,
        .scale = rescale ? run->scale : 1,
        .divisor = rescale ? run->divisor : 1};
    choir__reduce(&r, run->partial, 0, m->count);
}

static bool rescales(const choir__move *m, const choir__move *before)
{
    return m->kind == CHOIR__MOVE_RESCALE && m->count == before->count &&
           m->to.buffer == before->to.buffer && m->to.at == before->to.at;
}

void choir__lane_local(const choir__move_schedule_run *run, choir__lane *lane)
{
    const choir__move *moves = lane->kept->schedule.moves;
    for (int i = lane->local; i < lane->local_end; i++) {
        const choir__move *m = &moves[i];
        char *to = choir__lane_at(run, lane, m->to), *from = NULL;
        if (m->kind == CHOIR__MOVE_COPY || m->kind == CHOIR__MOVE_COMBINE)
            from = choir__lane_at(run, lane, m->from);
        switch (m->kind) {
        case CHOIR__MOVE_COPY:
            if (to != from)
                memmove(to, from, (size_t)m->count * run->size);
            break;
        case CHOIR__MOVE_COMBINE:
            run->arith->combine(to, m->swap ? to : from, m->swap ? from : to, m->count);
            break;
        case CHOIR__MOVE_REDUCE: {
            bool fused = i + 1 < lane->local_end && rescales(&moves[i + 1], m);
            reduce(run, lane, m, fused);
            i += fused;
            break;
        }
        case CHOIR__MOVE_RESCALE:
            run->arith->rescale(to, m->count, run->scale, run->divisor);
            break;
        default: break; /* a message: see run.c */
        }
    }
    lane->local = lane->local_end;
}

/* --- wider copies --- */

/* Returns the number of blocks of a segment in this rank's data: one per rank in
 * reduce_scatter. */
static int blocks(const choir__move_schedule_run *run)
{
    return run->call->stamp.kind == CHOIR__REDUCE_SCATTER ? run->engine->world : 1;
}

void choir__lane_widen(const choir__move_schedule_run *run, choir__lane *lane)
{
    const char *data = run->call->in;
    for (int b = 0; b < blocks(run); b++) {
        int64_t from = b * (int64_t)run->call->stamp.count + lane->first;
        run->wide->widen(lane->wide_in + (size_t)(b * lane->count) * run->size,
            data + (size_t)from * run->wide->size, lane->count);
    }
    lane->in = lane->wide_in;
    lane->out = lane->wide_out;
    lane->block = 0;
}

void choir__lane_narrow(const choir__move_schedule_run *run, choir__lane *lane)
{
    const choir__stamp *stamp = &run->call->stamp;
    if (stamp->kind == CHOIR__REDUCE &&
        stamp->root != choir__engine_number(run->engine, run->engine->rank))
        return; /* this rank has no result */
    run->wide->narrow(
        (char *)run->call->out + (size_t)lane->first * run->wide->size, lane->out, lane->count);
}
