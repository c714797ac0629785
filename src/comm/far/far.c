/* Far memory through staging: see far.h. Calls on rows are in far_rows.c, the staging memory
 * and the copies in far_staging.c.
 *
 * Most calls have up to two sides of some *parts* of `count` elements each; a piece is the same
 * range of every part:
 *
 *     all_gather, 3 ranks      in  | 0 1 2 |     out  | 0 1 2 | 0 1 2 | 0 1 2 |
 *                piece 1             ^                  ^       ^       ^
 *
 * Pieces do not overlap in time: a piece is large enough for its copies to run at the bus's
 * rate, and the engine uses all cores for its own work. */
#include "comm/far/far.h"

#include <stdlib.h>

#include "comm/far/far_staging.h"
#include "base/tree.h"
#include "comm/rows.h"

enum { ALIGN = CHOIR__STAGING_ALIGN };

/* --- which calls --- */

static const choir__far *first_far(const choir__call *call)
{
    const void *p[] = {call->in, call->out, NULL, NULL};
    if (call->stamp.kind == CHOIR__TREE_SCATTER) {
        const choir__tree_scatter *a = call->rows;
        p[0] = a->nodes;
        p[1] = a->out;
    } else if (call->stamp.kind == CHOIR__GATHER_ROWS) {
        const choir__gather_rows *a = call->rows;
        p[0] = a->mine;
        p[1] = a->all;
    }
    const choir__far *far = p[0] ? choir__far_of(p[0]) : NULL;
    return far || !p[1] ? far : choir__far_of(p[1]);
}

bool choir__call_is_far(const choir__call *call)
{
    return first_far(call) != NULL;
}

/* --- calls of parts --- */

/* One side of a call: parts at at, at + stride, ... Their pieces are consecutive in staging. */
typedef struct side {
    char *at;
    size_t stride;
    int parts;
    bool moves; /* this side has data of this rank to copy */
} side;

typedef struct job {
    choir__engine *engine;
    const choir__call *call;
    side in, out;
    bool one; /* in and out are the same memory */
    size_t size;
    int most_in, most_out; /* the most parts of any rank: equal on all ranks */
} job;

/* Returns the number of nodes of the gradients' tree that this rank has; *most: the maximum
 * over the ranks. */
static int tree_parts(const choir__engine *engine, int64_t leaves, int *most)
{
    choir__node nodes[CHOIR__MAX_NODES];
    int mine = 0;
    *most = 1;
    for (int r = 0; r < engine->world; r++) {
        int64_t lo, hi;
        choir__tree_run(leaves, r, engine->world, &lo, &hi);
        int n = choir__tree_nodes(lo, hi, nodes);
        *most = n > *most ? n : *most;
        mine = r == engine->rank ? n : mine;
    }
    return mine;
}

static job describe(choir__engine *engine, const choir__call *call)
{
    const choir__stamp *s = &call->stamp;
    int world = engine->world;
    bool root = s->root == engine->rank;
    job j = {engine, call, {(char *)(uintptr_t)call->in, 0, 1, true}, {call->out, 0, 1, true},
        false, choir_dtype_size((choir_dtype)s->dtype), 1, 1};
    j.in.stride = j.out.stride = (size_t)s->count * j.size;
    switch ((choir__kind)s->kind) {
    case CHOIR__BROADCAST:
        j.one = true;
        j.in.moves = root;
        j.out.moves = !root;
        break;
    case CHOIR__REDUCE:
        j.one = true;
        j.out.moves = root;
        break;
    case CHOIR__GATHER:
        j.out.parts = root ? world : 0;
        j.most_out = world;
        break;
    case CHOIR__SCATTER:
        j.in.parts = root ? world : 0;
        j.most_in = world;
        break;
    case CHOIR__ALL_GATHER: j.out.parts = j.most_out = world; break;
    case CHOIR__REDUCE_SCATTER: j.in.parts = j.most_in = world; break;
    case CHOIR__ALL_TO_ALL: j.in.parts = j.out.parts = j.most_in = j.most_out = world; break;
    case CHOIR__TREE_REDUCE:
        j.one = true;
        j.in.parts = tree_parts(engine, s->leaves, &j.most_in);
        j.in.stride = call->node_stride;
        break;
    default: j.one = true; break; /* all_reduce */
    }
    if (j.one)
        j.most_out = 0;
    return j;
}

/* Copies elements [first, first + n) of all parts between a side and staging at near. */
static choir_status move(const job *j, const side *s, char *near, int64_t first, int64_t n,
    size_t near_stride, bool out)
{
    size_t bytes = (size_t)n * j->size;
    for (int p = 0; p < s->parts && s->moves && n; p++) {
        char *far = s->at + (size_t)p * s->stride + (size_t)first * j->size;
        char *here = near + (size_t)p * near_stride;
        choir_status status =
            out ? choir__far_copy(far, here, bytes) : choir__far_copy(here, far, bytes);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

/* Returns the layout of a piece of a large call, so that the engine detects ranks that cut the
 * call differently or not at all. */
static uint32_t mark_piece(uint32_t layout, uint64_t whole, int64_t first)
{
    uint64_t h = (layout ^ whole) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)first + 1;
    h = (h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)CHOIR__PIECE_MARK << 16 | (uint32_t)(h >> 48);
}

static choir_status run_piece(
    const job *j, choir__runner *run, char *near, int64_t first, int64_t n)
{
    choir__call call = *j->call;
    bool several = n < (int64_t)j->call->stamp.count;
    bool tree = call.stamp.kind == CHOIR__TREE_REDUCE;
    /* Parts of equal size are contiguous; the tree's nodes may have gaps. */
    size_t stride = (size_t)n * j->size;
    if (tree)
        stride = (stride + ALIGN - 1) / ALIGN * ALIGN;
    size_t in_bytes = ((size_t)j->most_in * stride + ALIGN - 1) / ALIGN * ALIGN;
    char *out = j->one ? near : near + in_bytes;
    call.in = near;
    call.out = out;
    call.node_stride = tree ? stride : call.node_stride;
    call.stamp.count = (uint64_t)n;
    if (several && call.stamp.kind != CHOIR__ALL_TO_ALL)
        call.stamp.layout = mark_piece(call.stamp.layout, j->call->stamp.count, first);
    if (first)
        call.stamp.seq = ++j->engine->seq;
    if (choir__far_fail(j->engine, move(j, &j->in, near, first, n, stride, false)) !=
            CHOIR_OK ||
        run(j->engine, &call) != CHOIR_OK)
        return j->engine->failed;
    side written = j->out;
    if (tree)
        written.parts = 1;
    return choir__far_fail(j->engine, move(j, &written, out, first, n, stride, true));
}

static choir_status run_parts(
    choir__engine *engine, const choir__call *call, const choir__far *far, choir__runner *run)
{
    job j = describe(engine, call);
    int64_t count = (int64_t)call->stamp.count;
    int64_t sides = choir__max(j.most_in + j.most_out, 1);
    int64_t each = choir__max(CHOIR__FAR_PIECE / (int64_t)j.size / sides / 1024 * 1024, 1024);
    each = choir__max(choir__min(each, count), 1); /* ends with 0 elements, too */
    size_t bytes = (size_t)sides * ((size_t)each * j.size + 2 * ALIGN) + 2 * ALIGN;
    char *near = choir__staging_get(engine, far, bytes);
    if (!near)
        return engine->failed;
    for (int64_t first = 0; first < choir__max(count, 1); first += each)
        if (run_piece(&j, run, near, first, choir__min(each, count - first)) != CHOIR_OK)
            return engine->failed;
    return CHOIR_OK;
}

/* --- uneven parts: whole, since ranks do not know each other's --- */

static choir_status run_uneven(
    choir__engine *engine, const choir__call *call, const choir__far *far, choir__runner *run)
{
    choir__call near = *call;
    size_t size = choir_dtype_size((choir_dtype)call->stamp.dtype), in = 0, out = 0;
    for (int r = 0; r < engine->world; r++) {
        in += (size_t)call->in_counts[r] * size;
        out += (size_t)call->out_counts[r] * size;
    }
    size_t apart = (in + ALIGN) / ALIGN * ALIGN;
    char *at = choir__staging_get(engine, far, apart + out);
    if (!at)
        return engine->failed;
    near.in = at;
    near.out = at + apart;
    if (choir__far_fail(engine, choir__far_copy(at, call->in, in)) != CHOIR_OK ||
        run(engine, &near) != CHOIR_OK)
        return engine->failed;
    return choir__far_fail(engine, choir__far_copy(call->out, near.out, out));
}

choir_status choir__far_run(choir__engine *engine, const choir__call *call, choir__runner *run)
{
    const choir__far *far = first_far(call);
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__TREE_SCATTER:
    case CHOIR__GATHER_ROWS: return choir__far_rows(engine, call, far, run);
    case CHOIR__ALL_TO_ALL:
        if (call->in_counts)
            return run_uneven(engine, call, far, run);
        break;
    default: break;
    }
    return run_parts(engine, call, far, run);
}

/* --- point to point --- */

static size_t message_bytes(const choir__call *call)
{
    size_t bytes = (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static choir_status move_messages(choir__engine *engine, const choir__call *calls,
    const choir__call *near, int count, bool out)
{
    for (int i = 0; i < count; i++) {
        size_t bytes =
            (size_t)calls[i].stamp.count * choir_dtype_size((choir_dtype)calls[i].stamp.dtype);
        choir_status status = CHOIR_OK;
        if (out && calls[i].out && near[i].out != calls[i].out)
            status = choir__far_copy(calls[i].out, near[i].out, bytes);
        if (!out && calls[i].in && near[i].in != calls[i].in)
            status = choir__far_copy((void *)(uintptr_t)near[i].in, calls[i].in, bytes);
        if (choir__far_fail(engine, status) != CHOIR_OK)
            return engine->failed;
    }
    return CHOIR_OK;
}

choir_status choir__far_batch(choir__engine *engine, const choir__call *calls, int count)
{
    const choir__far *far = NULL;
    size_t bytes = 0;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    for (int i = 0; i < count; i++) {
        const choir__far *own = first_far(&calls[i]);
        far = far ? far : own;
        bytes += own ? message_bytes(&calls[i]) : 0;
    }
    if (!far)
        return engine->ops->run_batch(engine, calls, count);
    char *at = choir__staging_get(engine, far, bytes + 1);
    if (!at)
        return engine->failed;
    choir__call *near = choir__calloc((size_t)count, sizeof *near);
    for (int i = 0; i < count; i++) {
        near[i] = calls[i];
        if (!first_far(&calls[i]))
            continue;
        near[i].in = calls[i].in ? at : NULL;
        near[i].out = calls[i].out ? at : NULL;
        at += message_bytes(&calls[i]);
    }
    choir_status status = move_messages(engine, calls, near, count, false);
    if (status == CHOIR_OK)
        status = engine->ops->run_batch(engine, near, count);
    if (status == CHOIR_OK)
        status = move_messages(engine, calls, near, count, true);
    free(near);
    return status;
}
