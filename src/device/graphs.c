/* Parts of a recording as graphs; a GPU receives each graph as one launch.
 *
 * A part is a run of entries that only concern queues with streams of one kind: tasks that
 * touch no host memory, events, waits for each other. Calls of the host (the next batch's data,
 * this step's learning rate) and queues of processors separate the parts. A part is captured
 * when it is first replayed, by running its tasks while the streams store the work instead of
 * running it. From then on it is one launch:
 *
 *     cuda:0   a b -e1- c       d            [ host call ]   [ a b c d | f g ] one launch
 *     cuda:1        f (e1) g -e2-                             after all earlier work of either
 *     cuda:0                  d (e2)                          queue, before all later work
 *
 * Entries that cannot be captured are issued task by task, as on a processor. */
#include <stdlib.h>
#include <string.h>

#include "device/recording_list.h"

enum { FEWEST = 8, MAX_QUEUES = 64 }; /* FEWEST: tasks that are worth a graph */

typedef struct choir__graph_part {
    int begin, end;                   /* entries */
    choir__queue *queues[MAX_QUEUES]; /* the first one launches the graph */
    int queue_count;
    choir__graph *graph;
    int *earlier; /* numbers of the events from before the part that it waits for */
    int earlier_count;
    bool tried;
} part;

/* --- finding parts --- */

static bool add_queue(part *p, choir__queue *queue)
{
    for (int i = 0; i < p->queue_count; i++)
        if (p->queues[i] == queue)
            return true;
    if (p->queue_count == MAX_QUEUES)
        return false;
    p->queues[p->queue_count++] = queue;
    return true;
}

/* Returns the queue that records event number n. */
static choir__queue *recorder_of(const choir__recording *r, int n)
{
    return r->events[n].queue;
}

static bool belongs(const choir__recording *r, const entry *e, part *p)
{
    choir__gpu_stream *s = e->kind == HOST ? NULL : choir__queue_stream(e->queue);
    choir__gpu_stream *first = p->queue_count ? choir__queue_stream(p->queues[0]) : s;
    if (e->kind == MOVED)
        return true;
    if (!s || s->ops != first->ops)
        return false;
    if (e->kind == TASK && !choir__queue_captures(e->queue, e->as.fn, r->args + e->args_at))
        return false;
    if (e->kind == WAIT) {
        choir__gpu_stream *other = choir__queue_stream(recorder_of(r, e->as.event));
        if (!other || other->ops != s->ops)
            return false;
    }
    return add_queue(p, e->queue);
}

static void add_part(choir__recording *r, const part *p, int tasks)
{
    if (tasks < FEWEST)
        return;
    r->parts = choir__realloc(r->parts, (size_t)(r->part_count + 1) * sizeof *r->parts);
    r->parts[r->part_count++] = *p;
}

static void find_parts(choir__recording *r)
{
    part p = {0};
    int tasks = 0;
    r->parts = choir__alloc(sizeof *r->parts);
    for (int i = 0; i <= r->count; i++) {
        const entry *e = &r->entries[i];
        if (i < r->count && belongs(r, e, &p)) {
            p.end = i + 1;
            tasks += e->kind == TASK;
            continue;
        }
        add_part(r, &p, tasks);
        p = (part){.begin = i + 1, .end = i + 1};
        tasks = 0;
    }
}

/* --- capturing one --- */

static choir__gpu_stream *stream_of(choir__queue *queue)
{
    return choir__queue_stream(queue);
}

/* Makes later work of one stream follow the work captured on another so far; returns false if
 * the stream is not captured. */
static bool join(choir__gpu_stream *stream, choir__gpu_stream *other)
{
    void *place = other->ops->place(other);
    bool joined = stream->ops->behind(stream, place);
    stream->ops->drop(place);
    return joined;
}

static void note_earlier(part *p, int event)
{
    CHOIR__GROW(p->earlier, p->earlier_count);
    p->earlier[p->earlier_count++] = event;
}

static void capture_entries(choir__recording *r, part *p)
{
    void **places = choir__calloc((size_t)r->event_count + 1, sizeof *places);
    const choir__gpu_stream_ops *ops = stream_of(p->queues[0])->ops;
    for (int i = p->begin; i < p->end; i++) {
        const entry *e = &r->entries[i];
        if (e->kind == TASK)
            choir__queue_run_now(e->queue, e->as.fn, r->args + e->args_at, e->bytes);
        else if (e->kind == EVENT)
            places[e->as.event] = ops->place(stream_of(e->queue));
        else if (e->kind == WAIT && places[e->as.event])
            ops->behind(stream_of(e->queue), places[e->as.event]);
        else if (e->kind == WAIT)
            note_earlier(p, e->as.event);
    }
    for (int i = 0; i < r->event_count; i++)
        ops->drop(places[i]);
    free(places);
}

static void keep(choir__recording *r, part *p, choir__gpu_stream *first)
{
    /* otherwise "captured" work would really run, and run again when it is issued */
    bool whole = true;
    for (int i = 1; i < p->queue_count; i++)
        whole &= join(stream_of(p->queues[i]), first);
    if (whole)
        capture_entries(r, p);
    for (int i = 1; i < p->queue_count && whole; i++)
        whole &= join(first, stream_of(p->queues[i]));
    p->graph = first->ops->end(first);
    for (int i = 0; i < p->queue_count; i++)
        whole &= first->ops->captured(stream_of(p->queues[i]));
    if (whole || !p->graph)
        return;
    first->ops->forget(p->graph);
    p->graph = NULL;
}

/* Captures a part. This thread owns the queues meanwhile, so no other thread issues to them. */
static void capture(choir__recording *r, part *p)
{
    choir__gpu_stream *first = stream_of(p->queues[0]);
    p->tried = true;
    for (int i = 0; i < p->queue_count; i++)
        if (choir__queue_wait(p->queues[i]) != CHOIR_OK)
            return;
    for (int i = 0; i < p->queue_count; i++)
        choir__queue_take(p->queues[i]);
    if (first->ops->begin(first))
        keep(r, p, first);
    for (int i = 0; i < p->queue_count; i++)
        choir__queue_give_back(p->queues[i]);
}

/* --- launching one --- */

typedef struct launch {
    choir__gpu_stream *stream;
    choir__graph *graph;
} launch;

static void launch_graph(const void *args)
{
    const launch *l = args;
    l->stream->ops->launch(l->stream, l->graph);
}

static void launch_part(choir__recording *r, const part *p)
{
    launch l = {stream_of(p->queues[0]), p->graph};
    for (int i = 1; i < p->queue_count; i++)
        choir__queue_wait_event_raw(p->queues[0], choir__queue_record(p->queues[i]));
    for (int i = 0; i < p->earlier_count; i++) /* the whole part waits for them */
        choir__queue_wait_event_raw(p->queues[0], r->events[p->earlier[i]]);
    choir__queue_issue_raw(p->queues[0], launch_graph, &l, sizeof l);
    for (int i = 1; i < p->queue_count; i++)
        choir__queue_wait_event_raw(p->queues[i], choir__queue_record(p->queues[0]));
    for (int i = p->begin; i < p->end; i++) {
        const entry *e = &r->entries[i];
        if (e->kind == EVENT)
            r->events[e->as.event] = choir__queue_record(e->queue);
        else if (e->kind == MOVED)
            choir__queue_moved_raw(e->queue, e->as.moved.from, e->as.moved.bytes);
    }
}

static bool observed(const part *p)
{
    bool any = false;
    for (int i = 0; i < p->queue_count; i++)
        any |= choir__queue_observed(p->queues[i]);
    return any;
}

int choir__graphs_launch(choir__recording *r, int i)
{
    if (!r->parts)
        find_parts(r);
    for (int k = 0; k < r->part_count; k++) {
        part *p = &r->parts[k];
        if (p->begin != i)
            continue;
        if (!p->tried && !observed(p))
            capture(r, p);
        if (!p->graph || observed(p)) /* observers need single tasks */
            return i;
        launch_part(r, p);
        return p->end;
    }
    return i;
}

void choir__graphs_free(choir__recording *r)
{
    for (int k = 0; k < r->part_count; k++) {
        if (r->parts[k].graph)
            stream_of(r->parts[k].queues[0])->ops->forget(r->parts[k].graph);
        free(r->parts[k].earlier);
    }
    free(r->parts);
    r->parts = NULL;
    r->part_count = 0;
}
