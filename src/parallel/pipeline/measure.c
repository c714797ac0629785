/* The first steps of a pipeline run without cuts, one micro-batch after the other, each op on
 * the device that has its parameters (spread.c). They are real steps, so nothing is computed
 * twice. An op costs what its kernels come to at fixed rates (device/counts/tally.h), in
 * forward and backward, so that the cuts, and with them each device's memory, follow from the
 * program. On request the clock is read instead: between two ops the host waits for the device.
 * The minimum over all micro-batches counts, because the first calls of a kernel make what
 * later calls reuse. */
#include <stdlib.h>
#include <string.h>

#include "device/counts/tally.h"
#include "parallel/pipeline/pipeline.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"

static void make_room(choir__pipeline *p)
{
    if (p->ops < p->room)
        return;
    int room = p->room ? 2 * p->room : 256;
    p->costs = choir__realloc(p->costs, (size_t)room * sizeof *p->costs);
    p->now = choir__realloc(p->now, (size_t)room * sizeof *p->now);
    p->held = choir__realloc(p->held, (size_t)room * sizeof *p->held);
    p->crossing = choir__realloc(p->crossing, (size_t)room * sizeof *p->crossing);
    p->made = choir__realloc(p->made, (size_t)room * sizeof *p->made);
    p->ran_on = choir__realloc(p->ran_on, (size_t)room * sizeof *p->ran_on);
    p->paths = choir__realloc(p->paths, (size_t)room * sizeof *p->paths);
    for (int i = p->room; i < room; i++) {
        p->costs[i] = (choir__op_cost){1e30, 1e30, 1e30};
        p->crossing[i] = p->held[i] = p->made[i] = 0;
        p->paths[i] = "";
    }
    p->room = room;
}

/* A first micro-batch that failed may have noted some ops already. */
static void begin_noting(choir__pipeline *p)
{
    p->ops = p->use_count = 0;
    for (int i = 0; i < p->room; i++)
        p->crossing[i] = p->held[i] = p->made[i] = 0;
}

static void note_use(choir__pipeline *p, choir_tensor *t, int op, int64_t rows)
{
    CHOIR__GROW(p->uses, p->use_count);
    p->uses[p->use_count++] = (choir__op_use){t, op, rows};
}

/* Returns the rows that an op looks up in its first operand, a parameter; 0: none. */
static int64_t looked_up(
    const choir_scope *scope, const char *op, choir_tensor *const *in, int count)
{
    bool looks_up = count == 2 && in[0]->param && in[1] && !strcmp(op, "embedding");
    return looks_up ? choir__sequence_rows(scope, in[1]->count) : 0;
}

/* Returns the bytes on the device that is measured, without gathered weights, which come and go
 * with the units. */
static double bytes_on(const choir__micro *m)
{
    choir_device_stats stats;
    choir_device_get_stats(m->on, &stats);
    return (double)stats.bytes_now - (double)choir__data_gathered(m->pipeline->data, m->on);
}

/* Returns the time since the last call: by the clock, when the device has done its work; or the
 * counted time. */
static double take_time(choir__micro *m)
{
    if (!m->pipeline->clocked)
        return choir__tally_take();
    (void)!choir_device_sync(m->on);
    double before = m->noted;
    m->noted = choir__now();
    return m->noted - before;
}

/* Begins to time an op, when its device has all operands. */
static void begin_op(choir__micro *m)
{
    const choir__pipeline *p = m->pipeline;
    m->on = p->stages > 1 ? choir__stage_device(p, m->placement.stage) : m->scope->device;
    (void)take_time(m);
    m->bytes_noted = bytes_on(m);
}

/* Notes the time of the op under way, and the bytes that it leaves on its device. */
static void end_op(choir__micro *m)
{
    choir__pipeline *p = m->pipeline;
    if (!m->on)
        return;
    p->now[m->ops - 1].forward += take_time(m);
    p->held[m->ops - 1] = bytes_on(m) - m->bytes_noted;
    m->on = NULL;
}

/* Returns the number of the op that made t, plus one; it stays known after t's memory is
 * gone. */
static int maker(const choir_tensor *t)
{
    return t->producer ? t->producer->number + 1 : 0;
}

/* The operand's bytes would cross a cut before any op after its maker, up to this op. */
static void note_crossing(choir__pipeline *p, const choir_tensor *x, int op)
{
    double bytes = (double)x->count * (double)choir_dtype_size(x->dtype);
    if (maker(x) && maker(x) <= p->ops)
        p->made[maker(x) - 1] = bytes;
    for (int i = maker(x); i <= op; i++)
        p->crossing[i] += i > 0 ? bytes : 0;
}

static bool measure_op(
    choir__micro *m, choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    choir__pipeline *p = m->pipeline;
    bool first = p->measured == 0 && m->index == 0;
    end_op(m);
    if (first && m->ops == p->ops) {
        make_room(p);
        p->ops++;
    }
    if (m->ops < p->ops)
        p->now[m->ops] = (choir__op_cost){0, 0, 0};
    m->placement.op = m->ops;
    if (first && scope->run->at)
        p->paths[m->ops] = scope->run->at->path;
    for (int i = 0; i < count && first; i++) {
        if (!in[i])
            continue;
        if (in[i]->scope->kind == CHOIR__RUN)
            note_use(p, in[i], m->ops, i ? 0 : looked_up(scope, op, in, count));
        else
            note_crossing(p, in[i], m->ops);
    }
    m->ops++;
    if (m->ops > p->ops) {
        choir__poison(scope, CHOIR_ERR_STATE,
            "pipeline: micro-batch %lld has more ops than the first one, which had %d",
            (long long)m->index, p->ops);
        return false;
    }
    if (p->remote && p->measured == 0)
        for (int i = 0; i < count; i++)
            if (in[i] && choir__pipeline_note_data(p, in[i]) != CHOIR_OK)
                return false;
    if (p->stages > 1 && !choir__pipeline_follow_op(m, scope, in, count))
        return false;
    p->ran_on[m->ops - 1] = m->placement.stage;
    begin_op(m);
    return true;
}

static void keep_the_least(choir__pipeline *p)
{
    for (int i = 0; i < p->ops; i++) {
        choir__op_cost *least = &p->costs[i], *now = &p->now[i];
        least->forward = now->forward < least->forward ? now->forward : least->forward;
        least->input = now->input < least->input ? now->input : least->input;
        least->weight = now->weight < least->weight ? now->weight : least->weight;
    }
}

static bool measuring(const choir__pipeline *p)
{
    return p->measured < CHOIR__MEASURED_STEPS;
}

static choir_status backward(choir__micro *m)
{
    choir__walk w;
    choir_status status = choir__walk_open(&w, m->loss, NULL, 1, 0);
    if (status != CHOIR_OK)
        return status;
    w.costs = measuring(m->pipeline) ? m->pipeline->now : NULL;
    w.clocked = m->pipeline->clocked;
    status = choir__walk_stage(&w, -1, false);
    if (status == CHOIR_OK)
        choir__walk_close(&w);
    return status;
}

static choir_status run_micro(choir__micro *m, choir_tensor **loss)
{
    choir__pipeline *p = m->pipeline;
    m->loss = p->fn(m->scope, p->module, p->arg);
    choir_status status = choir__scope_status(m->scope);
    if (status == CHOIR_OK && !m->loss)
        status = choir__error(CHOIR_ERR_ARGUMENT, "pipeline: a micro-batch without a loss");
    if (status == CHOIR_OK && measuring(p))
        end_op(m);
    if (status == CHOIR_OK && p->remote && p->measured == 0 && m->index == 0)
        status = choir__pipeline_agree_on_ops(p);
    choir_tensor *home = m->loss; /* ranks have no other rank's tensors */
    if (status == CHOIR_OK && choir__device_of(home)->carrier)
        home = choir__copied_to(m->scope, m->loss, m->scope->device);
    if (status == CHOIR_OK)
        status = backward(m);
    if (status == CHOIR_OK && measuring(p))
        keep_the_least(p);
    if (status == CHOIR_OK)
        *loss = choir__pipeline_keep(p, m->index, home);
    return status;
}

choir_status choir__pipeline_measure(
    choir__pipeline *p, choir_scope *step, int64_t count, choir_tensor **losses)
{
    choir_status status = CHOIR_OK;
    if (p->measured == 0)
        begin_noting(p);
    choir__tally_count(measuring(p) && !p->clocked ? step->device : NULL);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        choir_scope *scope = choir_micro_open(step, step->micro + i);
        choir__micro m = {.pipeline = p, .scope = scope, .index = i};
        if (measuring(p))
            choir__pipeline_place_by(&m, measure_op);
        status = run_micro(&m, &losses[i]);
        choir_status closed = choir__scope_end(scope);
        status = status == CHOIR_OK ? closed : status;
    }
    choir__tally_count(NULL);
    if (!measuring(p))
        return status;
    p->measured += status == CHOIR_OK;
    choir__step_forget(step); /* steps still differ; choir_step records later ones */
    return status;
}
