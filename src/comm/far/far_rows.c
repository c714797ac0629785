/* Calls on rows (comm/rows.h) over far memory: a few cuts at a time, packed consecutively in
 * staging, so that a call on all weights of a model needs no second copy of them.
 *
 *     far      | cut 0 |  | cut 1 | cut 2 |      | cut 3 |
 *     staging  | cut 0 | cut 1 | cut 2 |         then  | cut 3 |
 *
 * Cuts with the same layout in both memories are copied at once. */
#include <stdlib.h>

#include "comm/far/far_staging.h"
#include "comm/rows.h"

enum { ALIGN = 16 /* elements */ };

static int64_t align(int64_t elements)
{
    return (elements + ALIGN - 1) / ALIGN * ALIGN;
}

/* A sequence of copies between `far` and `near`, of elements of `size` bytes, which are merged
 * where both sides are contiguous. */
typedef struct mover {
    char *far, *near;
    size_t size;
    bool out;                       /* towards far */
    int64_t at_far, at_near, count; /* not copied yet */
    choir_status status;
} mover;

static void flush(mover *m)
{
    char *far = m->far + (size_t)m->at_far * m->size,
         *near = m->near + (size_t)m->at_near * m->size;
    size_t bytes = (size_t)m->count * m->size;
    if (m->count && m->status == CHOIR_OK)
        m->status =
            m->out ? choir__far_copy(far, near, bytes) : choir__far_copy(near, far, bytes);
    m->count = 0;
}

/* A gap between two cuts may be read together with them, but not written. */
static void add(mover *m, int64_t at_far, int64_t at_near, int64_t count)
{
    int64_t gap = at_far - m->at_far - m->count;
    bool alike = m->count && at_far - m->at_far == at_near - m->at_near;
    if (!count)
        return;
    if (!alike || gap < 0 || gap > (m->out ? 0 : ALIGN)) {
        flush(m);
        m->at_far = at_far;
        m->at_near = at_near;
    }
    m->count = at_near + count - m->at_near;
}

static choir_status finish(mover *m)
{
    flush(m);
    return m->status;
}

/* A few of the call's cuts, as they are arranged in staging. */
typedef struct some {
    const choir__rows_cut *cuts; /* the call's */
    choir__rows_cut *near;
    int count, rank, world;
    int64_t whole, own; /* elements of a buffer, and of this rank's rows */
} some;

/* Takes as many cuts as fit, from cut `first` on: at least one, and equally many on all
 * ranks. */
static some take(const choir__rows_cut *cuts, int first, int cut_count, int64_t most,
    const choir__engine *engine, choir__rows_cut *near)
{
    some s = {cuts + first, near, 0, engine->rank, engine->world, 0, 0};
    for (int i = first; i < cut_count; i++) {
        int64_t lo, count = cuts[i].rows * cuts[i].row;
        if (s.count && s.whole + count > most)
            break;
        near[s.count] = cuts[i];
        near[s.count].at = s.whole;
        near[s.count].out = s.own;
        s.whole += align(count);
        s.own += align(choir__cut_part(&cuts[i], s.rank, s.world, &lo));
        s.count++;
    }
    return s;
}

/* Copies whole blocks, or only this rank's rows of them (own). */
static choir_status move_blocks(
    const some *s, char *far, char *near, size_t size, bool own, bool out)
{
    mover m = {.far = far, .near = near, .size = size, .out = out};
    for (int i = 0; i < s->count; i++) {
        int64_t lo = 0, n = s->cuts[i].rows * s->cuts[i].row;
        if (own)
            n = choir__cut_part(&s->cuts[i], s->rank, s->world, &lo);
        add(&m, s->cuts[i].at + lo, s->near[i].at + lo, n);
    }
    return finish(&m);
}

/* Copies this rank's rows between buffers that contain only those. */
static choir_status move_own(const some *s, char *far, char *near, size_t size, bool out)
{
    mover m = {.far = far, .near = near, .size = size, .out = out};
    for (int i = 0; i < s->count; i++) {
        int64_t lo, n = choir__cut_part(&s->cuts[i], s->rank, s->world, &lo);
        add(&m, s->cuts[i].out, s->near[i].out, n);
    }
    return finish(&m);
}

static choir_status scatter(choir__engine *engine, const choir__call *call,
    const choir__far *far, choir__runner *run, const some *s)
{
    const choir__tree_scatter *a = call->rows;
    choir__node nodes[CHOIR__MAX_NODES];
    int mine = choir__scatter_nodes(a, engine->rank, engine->world, nodes);
    int results = choir__scatter_results(a, nodes);
    size_t size = choir_dtype_size(a->dtype);
    size_t stride = (size_t)align(s->whole) * size;
    size_t out_stride = (size_t)align(s->own) * size;
    char *near = choir__staging_get(
        engine, far, (size_t)mine * stride + (size_t)results * out_stride + 64);
    choir_status status = CHOIR_OK;
    if (!near)
        return engine->failed;
    char *out = near + (size_t)mine * stride;
    for (int k = 0; k < mine && status == CHOIR_OK; k++)
        status = move_blocks(s, (char *)(uintptr_t)a->nodes + (size_t)k * a->node_stride,
            near + (size_t)k * stride, size, false, false);
    choir__tree_scatter there = *a;
    there.nodes = near;
    there.node_stride = stride;
    there.cuts = s->near;
    there.cut_count = s->count;
    there.count = s->whole;
    there.out = out;
    there.out_stride = out_stride;
    choir__call part = *call;
    part.rows = &there;
    part.stamp.count = (uint64_t)s->whole;
    if (choir__far_fail(engine, status) != CHOIR_OK || run(engine, &part) != CHOIR_OK)
        return engine->failed;
    for (int k = 0; k < results && status == CHOIR_OK; k++)
        status = move_own(s, (char *)a->out + (size_t)k * a->out_stride,
            out + (size_t)k * out_stride, size, true);
    return choir__far_fail(engine, status);
}

static choir_status gather(choir__engine *engine, const choir__call *call,
    const choir__far *far, choir__runner *run, const some *s)
{
    const choir__gather_rows *a = call->rows;
    size_t size = choir_dtype_size(a->dtype);
    size_t all = ((size_t)align(s->whole) * size + 63) / 64 * 64;
    char *near = choir__staging_get(engine, far, all + (size_t)s->own * size + 64);
    if (!near)
        return engine->failed;
    choir_status status = a->mine
                              ? move_own(s, (char *)(uintptr_t)a->mine, near + all, size, false)
                              : move_blocks(s, a->all, near, size, true, false);
    choir__gather_rows there = {a->mine ? near + all : NULL, near, s->near, s->count, a->dtype};
    choir__call part = *call;
    part.rows = &there;
    part.stamp.count = (uint64_t)s->whole;
    if (choir__far_fail(engine, status) != CHOIR_OK || run(engine, &part) != CHOIR_OK)
        return engine->failed;
    return choir__far_fail(engine, move_blocks(s, a->all, near, size, false, true));
}

/* Returns the most nodes that any rank has. */
static int most_nodes(const choir__tree_scatter *a, int world)
{
    choir__node nodes[CHOIR__MAX_NODES];
    int most = 1;
    for (int r = 0; r < world; r++) {
        int n = choir__scatter_nodes(a, r, world, nodes);
        most = n > most ? n : most;
    }
    return most;
}

choir_status choir__far_rows(
    choir__engine *engine, const choir__call *call, const choir__far *far, choir__runner *run)
{
    bool scatters = call->stamp.kind == CHOIR__TREE_SCATTER;
    const choir__tree_scatter *s = scatters ? call->rows : NULL;
    const choir__gather_rows *g = scatters ? NULL : call->rows;
    const choir__rows_cut *cuts = s ? s->cuts : g->cuts;
    int cut_count = s ? s->cut_count : g->cut_count, at = 0;
    int64_t most = CHOIR__FAR_PIECE / (int64_t)choir_dtype_size((choir_dtype)call->stamp.dtype);
    choir__rows_cut *near = choir__calloc((size_t)cut_count + 1, sizeof *near);
    choir__call part = *call;
    most = s ? most / most_nodes(s, engine->world) : most;
    do {
        some now = take(cuts, at, cut_count, most, engine, near);
        if (at || now.count < cut_count) /* detects ranks that cut the call differently */
            part.stamp.layout = (call->stamp.layout ^ (uint32_t)at) * 2654435761u + 1;
        if (at)
            part.stamp.seq = ++engine->seq;
        at += now.count;
        if (s ? scatter(engine, &part, far, run, &now) : gather(engine, &part, far, run, &now))
            break;
    } while (at < cut_count);
    free(near);
    return engine->failed;
}
