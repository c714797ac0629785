/* A batch of calls: first all sends and receives, concurrently; then the collectives in order,
 * with compatible neighbors packed into one.
 *
 * Neighbors of the same kind, type, operation and root are coalesced while they are small:
 * their data are packed into one buffer, part by part if a call has one part per rank. The
 * stamp of the packed call carries a digest of the individual counts, so ranks that divide the
 * same total differently are detected. */
#include <stdlib.h>
#include <string.h>

#include "comm/far/far.h"
#include "comm/issue.h"

enum { FUSED_BYTES = 4 << 20 }; /* above, packing costs more than a call's latency */

static bool is_message(const choir__call *call)
{
    return call->stamp.kind == CHOIR__SEND || call->stamp.kind == CHOIR__RECEIVE;
}

/* Returns the number of parts of `count` elements in a call's in and out; false: the call
 * cannot be packed. */
static bool parts(const choir__call *call, int world, int *in, int *out)
{
    *in = *out = 1;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
    case CHOIR__REDUCE:
    case CHOIR__ALL_REDUCE: return true;
    case CHOIR__ALL_GATHER: *out = world; return true;
    case CHOIR__REDUCE_SCATTER: *in = world; return true;
    default: return false;
    }
}

static bool alike(const choir__stamp *a, const choir__stamp *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->algorithm == b->algorithm;
}

static size_t bytes_of(const choir__call *call)
{
    return (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
}

/* Returns how many calls, from the first on, are packed together. An engine that takes far data
 * directly takes such calls one by one. */
static int run_length(const choir__engine *engine, const choir__call *calls, int count)
{
    int in, out, n = 1;
    if (!parts(calls, engine->world, &in, &out) || choir__engine_takes(engine, calls))
        return 1;
    size_t total = bytes_of(calls) * (size_t)choir__max(in, out);
    while (n < count && alike(&calls[n].stamp, &calls->stamp) &&
           !choir__engine_takes(engine, &calls[n]) &&
           (total += bytes_of(&calls[n]) * (size_t)choir__max(in, out)) <= FUSED_BYTES)
        n++;
    return n;
}

/* Copies between the calls' data and the packed buffer. Part p of all calls is stored together:
 * p * whole, then call after call. */
static choir_status pack(
    char *packed, const choir__call *calls, int count, int in_parts, size_t whole)
{
    size_t at = 0;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count; i++) {
        size_t n = bytes_of(&calls[i]);
        for (int p = 0; p < in_parts && n && status == CHOIR_OK; p++)
            status = choir__far_copy(
                packed + (size_t)p * whole + at, (const char *)calls[i].in + (size_t)p * n, n);
        at += n;
    }
    return status;
}

static choir_status unpack(
    const char *packed, const choir__call *calls, int count, int out_parts, size_t whole)
{
    size_t at = 0;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < count; i++) {
        size_t n = bytes_of(&calls[i]);
        for (int p = 0; p < out_parts && n && status == CHOIR_OK; p++)
            status = choir__far_copy(
                (char *)calls[i].out + (size_t)p * n, packed + (size_t)p * whole + at, n);
        at += n;
    }
    return status;
}

/* Waits for a stream's work on data that the host is about to read, if the engine has a
 * stream. */
static choir_status settle(choir__engine *engine, const choir__call *calls, int count)
{
    bool far = false;
    for (int i = 0; i < count && engine->ops->settle && !far; i++)
        far = choir__call_is_far(&calls[i]);
    return far ? engine->ops->settle(engine) : CHOIR_OK;
}

static choir_status run_fused(choir_group *group, const choir__call *calls, int count)
{
    choir__engine *engine = group->engine;
    int in_parts, out_parts;
    size_t whole = 0;
    choir__call fused = calls[0];
    parts(calls, engine->world, &in_parts, &out_parts);
    fused.stamp.count = 0;
    for (int i = 0; i < count; i++) {
        whole += bytes_of(&calls[i]);
        fused.stamp.count += calls[i].stamp.count;
        fused.stamp.layout =
            (fused.stamp.layout ^ (uint32_t)calls[i].stamp.count) * 16777619u + 1;
    }
    bool in_place = in_parts == out_parts;
    size_t in_bytes = whole * (size_t)in_parts, out_bytes = whole * (size_t)out_parts;
    char *in = aligned_alloc(64, (in_bytes + out_bytes + 127) / 64 * 64);
    if (!in)
        return choir__engine_spread(engine, CHOIR_ERR_MEMORY,
            "out of memory: cannot allocate %zu bytes for the %d calls of a batch",
            in_bytes + out_bytes, count);
    char *out = in_place ? in : in + (in_bytes + 63) / 64 * 64;
    fused.in = in;
    fused.out = out;
    choir_status status = settle(engine, calls, count);
    if (status == CHOIR_OK)
        status = choir__far_fail(engine, pack(in, calls, count, in_parts, whole));
    if (status == CHOIR_OK)
        status = choir__group_run(group, &fused);
    bool mine = fused.stamp.kind != CHOIR__REDUCE || fused.stamp.root == engine->rank;
    if (status == CHOIR_OK && mine)
        status = choir__far_fail(engine, unpack(out, calls, count, out_parts, whole));
    free(in);
    return status;
}

/* Sends and receives have no number, because not all ranks of the group take part. */
static choir_status run_messages(choir_group *group, const choir__call *calls, int count)
{
    choir__engine *engine = group->engine;
    choir__call *some = choir__calloc((size_t)count, sizeof *some);
    int found = 0;
    for (int i = 0; i < count; i++)
        if (is_message(&calls[i]))
            some[found++] = calls[i];
    choir_status status = engine->failed;
    if (found && status == CHOIR_OK) {
        for (int i = 0; i < found; i++)
            choir__flight_log_begin(group->log, &some[i].stamp);
        status = engine->ops->takes ? engine->ops->run_batch(engine, some, found)
                                    : choir__far_batch(engine, some, found);
        for (int i = 0; i < found; i++)
            choir__flight_log_end(group->log, &some[i].stamp, status);
    }
    free(some);
    return status;
}

choir_status choir__read_batch_run(choir_group *group, choir__call *calls, int count)
{
    choir_status status = run_messages(group, calls, count);
    for (int i = 0, n; i < count && status == CHOIR_OK; i += n) {
        if (is_message(&calls[i])) {
            n = 1;
            continue;
        }
        int end = i + 1;
        while (end < count && !is_message(&calls[end]))
            end++;
        n = run_length(group->engine, &calls[i], end - i);
        choir__call alone = calls[i];
        status = n == 1 ? choir__group_run(group, &alone) : run_fused(group, &calls[i], n);
    }
    return status;
}
