/* Far data moved over NCCL: sends and receives in an NCCL group, which start together.
 *
 * Element types do not matter here: all data travel as bytes. A rank's part for itself is a
 * copy on the GPU. */
#include "comm/nccl/nccl.h"

/* --- parts --- */

/* Sends every rank's part of `in` to its owner and receives all parts for this rank into `out`.
 * NULL counts: parts of `bytes` each. */
typedef struct parts {
    const char *in;
    char *out;
    const int64_t *in_counts, *out_counts; /* numbers of elements, if parts are uneven */
    size_t bytes, size;
} parts;

static choir_status all_to_all(choir__nccl *n, const parts *p)
{
    size_t in = 0, out = 0, own_in = 0, own_out = 0, own = 0;
    int rank = n->base.rank;
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world; r++) {
        size_t gives = p->in_counts ? (size_t)p->in_counts[r] * p->size : p->bytes;
        size_t takes = p->out_counts ? (size_t)p->out_counts[r] * p->size : p->bytes;
        if (r == rank) {
            own_in = in;
            own_out = out;
            own = gives;
        } else {
            choir__nccl_send(n, p->in + in, gives, r);
            choir__nccl_receive(n, p->out + out, takes, r);
        }
        in += gives;
        out += takes;
    }
    if (choir__nccl_end(n) != CHOIR_OK)
        return choir__nccl_stopped(n);
    return choir__nccl_copy(n, p->out + own_out, p->in + own_in, own);
}

static choir_status run_all_to_all(choir__nccl *n, const choir__call *call)
{
    size_t size = choir_dtype_size((choir_dtype)call->stamp.dtype);
    parts p = {call->in, call->out, call->in_counts, call->out_counts,
        (size_t)call->stamp.count * size, size};
    if (call->in == call->out) { /* received data must not overwrite data not yet sent */
        size_t whole = p.bytes * (size_t)n->base.world;
        char *aside = choir__nccl_scratch(n, whole + 1);
        if (!aside || choir__nccl_copy(n, aside, call->in, whole) != CHOIR_OK)
            return choir__nccl_stopped(n);
        p.in = aside;
    }
    return all_to_all(n, &p);
}

/* Moves one part per rank to or from the root. */
static choir_status run_rooted(choir__nccl *n, const choir__call *call, bool gathers)
{
    int rank = n->base.rank, root = call->stamp.root;
    size_t bytes = (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
    char *all = gathers ? call->out : (char *)(uintptr_t)call->in;
    char *one = gathers ? (char *)(uintptr_t)call->in : call->out;
    choir__nccl_calls.GroupStart();
    for (int r = 0; r < n->base.world && rank == root; r++) {
        char *part = all + (size_t)r * bytes;
        if (r != rank && gathers)
            choir__nccl_receive(n, part, bytes, r);
        else if (r != rank)
            choir__nccl_send(n, part, bytes, r);
    }
    if (rank != root && gathers)
        choir__nccl_send(n, one, bytes, root);
    else if (rank != root)
        choir__nccl_receive(n, one, bytes, root);
    if (choir__nccl_end(n) != CHOIR_OK || rank != root)
        return choir__nccl_stopped(n);
    char *mine = all + (size_t)rank * bytes;
    return choir__nccl_copy(n, gathers ? mine : one, gathers ? one : mine, bytes);
}

/* --- rows --- */

/* Sends this rank's rows of every cut to all others, and receives theirs, in place. */
static choir_status gather_rows(choir__nccl *n, const choir__call *call)
{
    const choir__gather_rows *a = call->rows;
    size_t size = choir_dtype_size(a->dtype);
    int rank = n->base.rank, world = n->base.world;
    for (int first = 0; first < a->cut_count; first += CHOIR__NCCL_CUTS) {
        int end = choir__min(first + CHOIR__NCCL_CUTS, a->cut_count);
        for (int i = first; i < end && a->mine; i++) {
            int64_t lo, own = choir__cut_part(&a->cuts[i], rank, world, &lo);
            if (choir__nccl_copy(n, (char *)a->all + (size_t)(a->cuts[i].at + lo) * size,
                    (const char *)a->mine + (size_t)a->cuts[i].out * size,
                    (size_t)own * size) != CHOIR_OK)
                return choir__nccl_stopped(n);
        }
        choir__nccl_calls.GroupStart();
        for (int i = first; i < end; i++)
            for (int r = 0; r < world; r++) {
                int64_t lo, mine, theirs, at;
                mine = choir__cut_part(&a->cuts[i], rank, world, &lo);
                theirs = choir__cut_part(&a->cuts[i], r, world, &at);
                char *block = (char *)a->all + (size_t)a->cuts[i].at * size;
                if (r == rank)
                    continue;
                choir__nccl_send(n, block + (size_t)lo * size, (size_t)mine * size, r);
                choir__nccl_receive(n, block + (size_t)at * size, (size_t)theirs * size, r);
            }
        if (choir__nccl_end(n) != CHOIR_OK)
            return choir__nccl_stopped(n);
    }
    return CHOIR_OK;
}

/* --- calls --- */

choir_status choir__nccl_carry(choir__nccl *n, const choir__call *call)
{
    size_t bytes = (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
        return bytes ? choir__nccl_done(n,
                           choir__nccl_calls.Broadcast(call->out, call->out, bytes, ncclUint8,
                               call->stamp.root, n->comm, n->stream),
                           "a broadcast")
                     : CHOIR_OK;
    case CHOIR__ALL_GATHER:
        return bytes ? choir__nccl_done(n,
                           choir__nccl_calls.AllGather(
                               call->in, call->out, bytes, ncclUint8, n->comm, n->stream),
                           "an all-gather")
                     : CHOIR_OK;
    case CHOIR__GATHER: return run_rooted(n, call, true);
    case CHOIR__SCATTER: return run_rooted(n, call, false);
    case CHOIR__ALL_TO_ALL: return run_all_to_all(n, call);
    case CHOIR__GATHER_ROWS: return gather_rows(n, call);
    case CHOIR__TREE_SCATTER: return choir__nccl_tree_scatter(n, call);
    default: return choir__nccl_sum(n, call);
    }
}
