/* How a call runs. Small data travel with the stamps, and are copied, or added in the fixed
 * tree, when all ranks have entered. Larger data are messages of a schedule (comm/message).
 *
 * A reduction over ranks is the tree over micro-batches with one micro-batch per rank, so both
 * share their code: a rank holds some nodes of the tree, stored one after another. */
#include "comm/mpi/mpi.h"

#include <string.h>

/* Bytes of a stamp and data behind it that MPI sends eagerly. Larger data arrive sooner as
 * messages of their own, unless ranks add them. */
enum { EAGER = 4032 };

static size_t bytes_of(const choir__call *call)
{
    return (size_t)call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
}

static bool is_root(const choir__mpi *m, const choir__call *call)
{
    return call->stamp.root == m->base.rank;
}

/* Returns the number of nodes of the tree that a rank has, and the nodes. */
static int nodes_of(
    const choir__mpi *m, const choir__call *call, int rank, choir__node nodes[CHOIR__MAX_NODES])
{
    int64_t lo, hi;
    bool tree = call->stamp.kind == CHOIR__TREE_REDUCE;
    choir__tree_run(tree ? call->stamp.leaves : m->base.world, rank, m->base.world, &lo, &hi);
    return choir__tree_nodes(lo, hi, nodes);
}

/* --- small data --- */

static bool is_small(const choir__mpi *m, const choir__call *call)
{
    choir__node nodes[CHOIR__MAX_NODES];
    size_t bytes = bytes_of(call);
    int64_t most = 1;
    bool eager = bytes + sizeof(choir__stamp) <= EAGER;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER: return eager && bytes <= choir__mpi_parcel_room(m, false);
    case CHOIR__SCATTER:
    case CHOIR__ALL_TO_ALL:
    case CHOIR__REDUCE_SCATTER:
        return !call->in_counts && eager && bytes <= choir__mpi_parcel_room(m, true);
    case CHOIR__REDUCE:
    case CHOIR__ALL_REDUCE:
    case CHOIR__TREE_REDUCE:
        for (int r = 0; r < m->base.world; r++)
            most = choir__max(most, nodes_of(m, call, r, nodes));
        return bytes * (size_t)most <= choir__mpi_parcel_room(m, false);
    default: return false;
    }
}

/* Returns the data that this rank sends behind its stamp; packed: memory for nodes that are not
 * stored one after another. */
static choir__mpi_parcel parcel_of(
    const choir__mpi *m, const choir__call *call, char packed[CHOIR__MPI_SMALL])
{
    size_t bytes = bytes_of(call);
    choir__node nodes[CHOIR__MAX_NODES];
    choir__mpi_parcel parcel = {call->in, bytes, 0};
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST: parcel.bytes = is_root(m, call) ? bytes : 0; break;
    case CHOIR__SCATTER:
        parcel.bytes = is_root(m, call) ? bytes : 0;
        parcel.stride = bytes;
        break;
    case CHOIR__ALL_TO_ALL:
    case CHOIR__REDUCE_SCATTER: parcel.stride = bytes; break;
    case CHOIR__TREE_REDUCE:
        parcel = (choir__mpi_parcel){
            packed, bytes * (size_t)nodes_of(m, call, m->base.rank, nodes), 0};
        for (size_t at = 0; at < parcel.bytes; at += bytes)
            memcpy(packed + at, (const char *)call->in + at / bytes * call->node_stride, bytes);
        break;
    default: break;
    }
    return parcel;
}

/* Copies the parts of all ranks, in their order. */
static void take_all(const choir__mpi *m, const choir__call *call)
{
    size_t bytes = bytes_of(call);
    for (int r = 0; r < m->base.world; r++)
        memcpy((char *)call->out + (size_t)r * bytes, choir__mpi_parcel_of(m, r), bytes);
}

/* Notes where the nodes of all ranks are; returns their number. This rank's own data stay where
 * the caller has them. */
static int gather_nodes(choir__mpi *m, const choir__call *call)
{
    int sources = 0;
    size_t bytes = bytes_of(call);
    bool parts = call->stamp.kind == CHOIR__REDUCE_SCATTER;
    bool tree = call->stamp.kind == CHOIR__TREE_REDUCE;
    const char *own = (const char *)call->in + (parts ? (size_t)m->base.rank * bytes : 0);
    for (int r = 0; r < m->base.world; r++) {
        choir__node nodes[CHOIR__MAX_NODES];
        int n = nodes_of(m, call, r, nodes);
        bool mine = r == m->base.rank;
        const char *from = mine ? own : choir__mpi_parcel_of(m, r);
        if (sources + n > m->nodes_room) {
            m->nodes_room = 2 * (sources + n);
            m->nodes = choir__realloc(m->nodes, (size_t)m->nodes_room * sizeof *m->nodes);
            m->from = choir__realloc(m->from, (size_t)m->nodes_room * sizeof *m->from);
        }
        for (int k = 0; k < n; k++) {
            m->nodes[sources] = nodes[k];
            m->from[sources++] = from + (size_t)k * (mine && tree ? call->node_stride : bytes);
        }
    }
    return sources;
}

static void add_up(choir__mpi *m, const choir__call *call)
{
    char *to = call->out;
    bool mean = call->stamp.op == CHOIR_MEAN;
    int sources = gather_nodes(m, call);
    choir__reduce_task r = {.sources = sources,
        .arith =
            choir__arith_find((choir_dtype)call->stamp.dtype, (choir_reduce_op)call->stamp.op),
        .nodes = m->nodes,
        .from = m->from,
        .to = &to,
        .outputs = 1,
        .scale = mean ? 1.0 / m->base.world : 1,
        .divisor = mean ? m->base.world : 1};
    if (call->stamp.kind == CHOIR__TREE_REDUCE)
        r.scale = call->scale;
    choir__reduce(&r, m->scratch, 0, (int64_t)call->stamp.count);
}

static choir_status run_small(choir__mpi *m, const choir__call *call)
{
    char packed[CHOIR__MPI_SMALL];
    choir__mpi_parcel parcel = parcel_of(m, call, packed);
    if (choir__mpi_enter(m, &call->stamp, &parcel) != CHOIR_OK)
        return m->base.failed;
    if (!call->stamp.count)
        return CHOIR_OK;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
    case CHOIR__SCATTER:
        if (call->stamp.kind == CHOIR__SCATTER || !is_root(m, call))
            memcpy(call->out, choir__mpi_parcel_of(m, call->stamp.root), bytes_of(call));
        break;
    case CHOIR__GATHER:
        if (is_root(m, call))
            take_all(m, call);
        break;
    case CHOIR__ALL_GATHER:
    case CHOIR__ALL_TO_ALL: take_all(m, call); break;
    default:
        if (call->stamp.kind != CHOIR__REDUCE || is_root(m, call))
            add_up(m, call);
    }
    return CHOIR_OK;
}

/* --- uneven all-to-all --- */

/* Exchanges all ranks' counts, (world) sent to each rank and (world) expected from each, and
 * checks that every pair agrees: a schedule's messages say nothing about their sizes. */
static choir_status compare_counts(choir__mpi *m, const choir__call *call)
{
    int world = m->base.world;
    size_t row = 2 * (size_t)world, bytes = row * sizeof(int64_t);
    if (choir__mpi_room(m, bytes * (size_t)world) != CHOIR_OK)
        return m->base.failed;
    int64_t *all = (int64_t *)(void *)m->work, *mine = all + row * (size_t)m->base.rank;
    memcpy(mine, call->in_counts, bytes / 2);
    memcpy(mine + world, call->out_counts, bytes / 2);
    if (CHOIR__MPI_RUN(m, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT64_T, all, 2 * world,
                              MPI_INT64_T, m->comm, &request_)) != CHOIR_OK)
        return m->base.failed;
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

/* --- dispatch --- */

static bool reduces(choir__kind kind)
{
    return kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE || kind == CHOIR__REDUCE_SCATTER;
}

choir_status choir__mpi_run(choir__engine *engine, const choir__call *call)
{
    choir__mpi *m = (choir__mpi *)engine;
    choir__kind kind = (choir__kind)call->stamp.kind;
    choir__algorithm algorithm = (choir__algorithm)call->stamp.algorithm;
    bool native = algorithm == CHOIR__NATIVE;
    if (native && reduces(kind))
        return choir__mpi_native(m, call);
    if ((native || algorithm == CHOIR__AUTO || algorithm == CHOIR__EXCHANGE) &&
        is_small(m, call))
        return run_small(m, call);
    if (choir__mpi_enter(m, &call->stamp, NULL) != CHOIR_OK)
        return engine->failed;
    if (kind == CHOIR__BARRIER || kind == CHOIR__SHARE)
        return CHOIR_OK;
    if (kind == CHOIR__ALL_TO_ALL && call->in_counts && compare_counts(m, call) != CHOIR_OK)
        return engine->failed;
    return choir__message_run(engine, call);
}
