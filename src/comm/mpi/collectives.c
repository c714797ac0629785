/* The collectives that only move data, and the choice of the function that runs a call.
 *
 * Small data travel with the stamps; larger data move by MPI's collective of that name. */
#include "comm/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 30, /* bytes per broadcast: MPI counts in int */
};

static size_t size_of(const choir__call *call)
{
    return choir_dtype_size((choir_dtype)call->stamp.dtype);
}

/* --- moving data --- */

static choir_status barrier(choir__mpi *m, const choir__call *call)
{
    return choir__mpi_enter(m, &call->stamp, NULL);
}

static choir_status broadcast(choir__mpi *m, const choir__call *call)
{
    size_t bytes = (size_t)call->stamp.count * size_of(call);
    bool root = call->stamp.root == m->base.rank;
    bool small = bytes <= choir__mpi_parcel_room(m, false);
    choir__mpi_parcel parcel = {call->in, root && small ? bytes : 0, 0};
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    if (small && !root && bytes)
        memcpy(call->out, choir__mpi_parcel_of(m, call->stamp.root), bytes);
    for (size_t at = 0, n; at < bytes && !small; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        if (CHOIR__MPI_RUN(m, MPI_Ibcast((char *)call->out + at, (int)n, MPI_BYTE,
                                  call->stamp.root, m->comm, &request_)) != CHOIR_OK)
            return m->base.failed;
    }
    if (!small && root)
        choir__mpi_count_bytes(m, bytes);
    return CHOIR_OK;
}

/* gather and all_gather: each rank's part, in rank order. */
static choir_status gather(choir__mpi *m, const choir__call *call)
{
    bool all = call->stamp.kind != CHOIR__GATHER;
    bool mine = all || call->stamp.root == m->base.rank;
    size_t bytes = (size_t)call->stamp.count * size_of(call);
    bool small = bytes <= choir__mpi_parcel_room(m, false);
    choir__mpi_parcel parcel = {call->in, small ? bytes : 0, 0};
    MPI_Datatype type = choir__mpi_carrier(size_of(call));
    int n = (int)call->stamp.count;
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    for (int r = 0; r < m->base.world && small && mine && bytes; r++)
        memcpy((char *)call->out + (size_t)r * bytes, choir__mpi_parcel_of(m, r), bytes);
    if (small)
        return CHOIR_OK;
    if (choir__mpi_check_total(m, call->stamp.count) != CHOIR_OK)
        return m->base.failed;
    choir__mpi_count_bytes(m, bytes);
    bool in_place = mine && call->in == (char *)call->out + (size_t)m->base.rank * bytes;
    const void *from = in_place ? MPI_IN_PLACE : call->in;
    return all ? CHOIR__MPI_RUN(
                     m, MPI_Iallgather(from, n, type, call->out, n, type, m->comm, &request_))
               : CHOIR__MPI_RUN(m, MPI_Igather(from, n, type, call->out, n, type,
                                       call->stamp.root, m->comm, &request_));
}

static choir_status scatter(choir__mpi *m, const choir__call *call)
{
    bool root = call->stamp.root == m->base.rank;
    size_t bytes = (size_t)call->stamp.count * size_of(call);
    bool small = bytes <= choir__mpi_parcel_room(m, true);
    choir__mpi_parcel parcel = {call->in, root && small ? bytes : 0, bytes};
    MPI_Datatype type = choir__mpi_carrier(size_of(call));
    int n = (int)call->stamp.count;
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    if (small && bytes)
        memcpy(call->out, choir__mpi_parcel_of(m, call->stamp.root), bytes);
    if (small)
        return CHOIR_OK;
    if (choir__mpi_check_total(m, call->stamp.count) != CHOIR_OK)
        return m->base.failed;
    if (root)
        choir__mpi_count_bytes(m, (size_t)(m->base.world - 1) * bytes);
    bool in_place = root && call->out == (const char *)call->in + (size_t)m->base.rank * bytes;
    return CHOIR__MPI_RUN(
        m, MPI_Iscatter(call->in, n, type, in_place ? MPI_IN_PLACE : call->out, n, type,
               call->stamp.root, m->comm, &request_));
}

/* --- all-to-all --- */

static choir_status all_to_all(choir__mpi *m, const choir__call *call)
{
    size_t bytes = (size_t)call->stamp.count * size_of(call);
    size_t whole = bytes * (size_t)m->base.world;
    bool small = bytes <= choir__mpi_parcel_room(m, true);
    choir__mpi_parcel parcel = {call->in, small ? bytes : 0, bytes};
    MPI_Datatype type = choir__mpi_carrier(size_of(call));
    int n = (int)call->stamp.count;
    const void *in = call->in;
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    for (int r = 0; r < m->base.world && small && bytes; r++)
        memcpy((char *)call->out + (size_t)r * bytes, choir__mpi_parcel_of(m, r), bytes);
    if (small)
        return CHOIR_OK;
    if (choir__mpi_check_total(m, call->stamp.count) != CHOIR_OK)
        return m->base.failed;
    if (in == call->out) {
        if (choir__mpi_room(m, whole) != CHOIR_OK)
            return m->base.failed;
        in = memcpy(m->work, in, whole);
    }
    choir__mpi_count_bytes(m, whole - bytes);
    return CHOIR__MPI_RUN(
        m, MPI_Ialltoall(in, n, type, call->out, n, type, m->comm, &request_));
}

/* Checks that rank a sends to b the number of elements that b expects from a. all: the ranks'
 * rows, each 2 * world long. */
static choir_status compare_counts(choir__mpi *m, const int64_t *all, size_t row)
{
    int world = m->base.world;
    for (int a = 0; a < world; a++)
        for (int b = 0; b < world; b++) {
            int64_t sent = all[(size_t)a * row + (size_t)b];
            int64_t awaited = all[(size_t)b * row + (size_t)(world + a)];
            if (sent == awaited)
                continue;
            m->told = true; /* all ranks detect it */
            return choir__mpi_fail(m, CHOIR_ERR_MISMATCH,
                "all_to_all: rank %d sends %lld elements to rank %d, which awaits %lld", a,
                (long long)sent, b, (long long)awaited);
        }
    return CHOIR_OK;
}

/* Converts counts of packed parts to int, and computes their offsets, the running sums. */
static choir_status lay_out(
    choir__mpi *m, const int64_t *from, int *counts, int *places, int64_t *sum)
{
    *sum = 0;
    for (int r = 0; r < m->base.world; r++) {
        if (from[r] + *sum > INT32_MAX)
            return choir__mpi_fail(m, CHOIR_ERR_UNSUPPORTED,
                "rank %d's parts of an all_to_all over MPI: expected up to %d elements",
                m->base.rank, INT32_MAX);
        counts[r] = (int)from[r];
        places[r] = (int)*sum;
        *sum += from[r];
    }
    return CHOIR_OK;
}

static choir_status all_to_all_uneven(choir__mpi *m, const choir__call *call)
{
    int world = m->base.world, *c = m->counts;
    size_t row = 2 * (size_t)world * sizeof(int64_t);
    int64_t sent, got;
    MPI_Datatype type = choir__mpi_carrier(size_of(call));
    const void *in = call->in;
    if (choir__mpi_enter(m, &call->stamp, NULL) != CHOIR_OK ||
        choir__mpi_room(m, row * (size_t)world) != CHOIR_OK)
        return m->base.failed;
    int64_t *all = (int64_t *)(void *)m->work, *mine = all + 2 * world * m->base.rank;
    memcpy(mine, call->in_counts, row / 2);
    memcpy(mine + world, call->out_counts, row / 2);
    if (CHOIR__MPI_RUN(m, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT64_T, all, 2 * world,
                              MPI_INT64_T, m->comm, &request_)) != CHOIR_OK ||
        compare_counts(m, all, 2 * (size_t)world) != CHOIR_OK ||
        lay_out(m, call->in_counts, c, c + world, &sent) != CHOIR_OK ||
        lay_out(m, call->out_counts, c + 2 * world, c + 3 * world, &got) != CHOIR_OK)
        return m->base.failed;
    size_t bytes = (size_t)sent * size_of(call);
    if (in == call->out && bytes) {
        if (choir__mpi_room(m, bytes) != CHOIR_OK)
            return m->base.failed;
        in = memcpy(m->work, in, bytes);
    }
    choir__mpi_count_bytes(m, bytes - (size_t)c[m->base.rank] * size_of(call));
    return CHOIR__MPI_RUN(m, MPI_Ialltoallv(in, c, c + world, type, call->out, c + 2 * world,
                                 c + 3 * world, type, m->comm, &request_));
}

/* --- dispatch --- */

/* Runs one piece of a call on rows. */
static choir_status carry(choir__engine *engine, const choir__call *call)
{
    choir__mpi *m = (choir__mpi *)engine;
    return call->in_counts ? all_to_all_uneven(m, call) : gather(m, call);
}

static choir_status plain(choir__mpi *m, const choir__call *call)
{
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BARRIER:
    case CHOIR__SHARE: return barrier(m, call);
    case CHOIR__BROADCAST: return broadcast(m, call);
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER: return gather(m, call);
    case CHOIR__SCATTER: return scatter(m, call);
    case CHOIR__ALL_TO_ALL:
        return call->in_counts ? all_to_all_uneven(m, call) : all_to_all(m, call);
    case CHOIR__REDUCE:
    case CHOIR__ALL_REDUCE:
    case CHOIR__TREE_REDUCE: return choir__mpi_reduce(m, call);
    case CHOIR__REDUCE_SCATTER: return choir__mpi_reduce_scatter(m, call);
    case CHOIR__TREE_SCATTER:
    case CHOIR__GATHER_ROWS: return choir__rows_run(&m->base, call, carry);
    default:
        return choir__mpi_fail(m, CHOIR_ERR_UNSUPPORTED, "no %s over MPI",
            choir__kind_name((choir__kind)call->stamp.kind));
    }
}

choir_status choir__mpi_run(choir__engine *engine, const choir__call *call)
{
    choir__mpi *m = (choir__mpi *)engine;
    choir__kind kind = (choir__kind)call->stamp.kind;
    bool reduces =
        kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE || kind == CHOIR__REDUCE_SCATTER;
    switch ((choir__algorithm)call->stamp.algorithm) {
    case CHOIR__AUTO:
    case CHOIR__EXCHANGE: return plain(m, call);
    case CHOIR__NATIVE: return reduces ? choir__mpi_native(m, call) : plain(m, call);
    default:
        if (choir__mpi_enter(m, &call->stamp, NULL) != CHOIR_OK)
            return engine->failed;
        return choir__message_run(engine, call);
    }
}
