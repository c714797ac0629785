/* Reductions by MPI's own algorithms: the bits are the same every time with the same MPI on the
 * same ranks, but differ from the fixed tree's.
 *
 * MPI has no 16-bit floats: they travel as f32, so their sums are rounded once, at the end.
 * Bytes that are added or compared travel as i32: Open MPI 4.1 with AVX saturates sums at 255,
 * and MPICH 4.0 takes the minimum as if bytes were signed. */
#include "comm/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>

choir_status choir__mpi_room(choir__mpi *m, size_t bytes)
{
    if (bytes <= m->work_bytes)
        return CHOIR_OK;
    free(m->work);
    m->work = aligned_alloc(64, (bytes + 63) / 64 * 64);
    m->work_bytes = m->work ? bytes : 0;
    return m->work ? CHOIR_OK
                   : choir__mpi_fail(m, CHOIR_ERR_MEMORY, "rank %d has no %zu bytes for %s",
                         m->base.rank, bytes, choir__kind_name((choir__kind)m->stamp.kind));
}

typedef struct native {
    const choir__arith *arith; /* arithmetic of the type that travels */
    const choir__arith *wide;  /* conversion to that type and back; NULL: none needed */
    MPI_Datatype type;
    MPI_Op op;
} native;

static MPI_Datatype type_of(choir_dtype dtype)
{
    switch (dtype) {
    case CHOIR_F64: return MPI_DOUBLE;
    case CHOIR_I64: return MPI_INT64_T;
    case CHOIR_I32: return MPI_INT32_T;
    case CHOIR_U8:
    case CHOIR_BOOL: return MPI_UINT8_T;
    default: return MPI_FLOAT; /* including the 16-bit floats, widened */
    }
}

static MPI_Op op_of(choir_dtype dtype, choir_reduce_op op)
{
    bool truth = dtype == CHOIR_BOOL;
    switch (op) {
    case CHOIR_MIN: return MPI_MIN;
    case CHOIR_MAX: return MPI_MAX;
    case CHOIR_PRODUCT: return truth ? MPI_MIN : MPI_PROD;
    case CHOIR_BAND: return MPI_BAND;
    case CHOIR_BOR: return MPI_BOR;
    case CHOIR_BXOR: return MPI_BXOR;
    default: return truth ? MPI_MAX : MPI_SUM;
    }
}

static native native_of(const choir__stamp *s)
{
    choir_dtype dtype = (choir_dtype)s->dtype;
    choir_reduce_op op = (choir_reduce_op)s->op;
    bool bytes = dtype == CHOIR_U8 && op < CHOIR_BAND;
    native n = {choir__arith_find(dtype, op), NULL, type_of(dtype), op_of(dtype, op)};
    n.wide = bytes ? choir__arith_find(dtype, CHOIR_MEAN) : n.arith->wide ? n.arith : NULL;
    if (n.wide) {
        n.arith = n.wide->wide;
        n.type = bytes ? MPI_INT32_T : MPI_FLOAT;
    }
    return n;
}

/* Returns the call's data, count elements of in, in the type that travels; in m->work if they
 * were widened. */
static const char *widened(choir__mpi *m, const native *n, const char *in, int64_t count)
{
    if (!n->wide)
        return in;
    n->wide->widen(m->work, in, count);
    return m->work;
}

/* Divides the reduced result for a mean, and converts it back to the call's type. */
static void settle(choir__mpi *m, const choir__call *call, const native *n, char *out,
    char *got, int64_t count)
{
    if (call->stamp.op == CHOIR_MEAN)
        n->arith->rescale(got, count, 1.0 / m->base.world, m->base.world);
    if (n->wide)
        n->wide->narrow(out, got, count);
}

static choir_status reduce(choir__mpi *m, const choir__call *call, const native *n)
{
    bool all = call->stamp.kind == CHOIR__ALL_REDUCE;
    bool mine = all || call->stamp.root == m->base.rank;
    size_t size = choir_dtype_size((choir_dtype)call->stamp.dtype);
    int64_t count = (int64_t)call->stamp.count, step = CHOIR__MPI_CHUNK;
    for (int64_t first = 0, part; first < count; first += part) {
        part = choir__min(step, count - first);
        if (n->wide && choir__mpi_room(m, 4 * (size_t)part) != CHOIR_OK)
            return m->base.failed;
        const char *in = widened(m, n, (const char *)call->in + (size_t)first * size, part);
        char *out = (char *)call->out + (size_t)first * size, *got = n->wide ? m->work : out;
        const void *from = mine && in == got ? MPI_IN_PLACE : in;
        if (all ? CHOIR__MPI_RUN(m,
                      MPI_Iallreduce(from, got, (int)part, n->type, n->op, m->comm, &request_))
                : CHOIR__MPI_RUN(m, MPI_Ireduce(from, got, (int)part, n->type, n->op,
                                        call->stamp.root, m->comm, &request_)))
            return m->base.failed;
        if (mine)
            settle(m, call, n, out, got, part);
    }
    choir__mpi_count_bytes(m, (size_t)count * size);
    return CHOIR_OK;
}

/* MPI's counts and offsets are int. */
static choir_status check_total(choir__mpi *m, uint64_t count)
{
    uint64_t most = INT32_MAX / (unsigned)m->base.world;
    return count <= most ? CHOIR_OK
                         : choir__mpi_fail(m, CHOIR_ERR_UNSUPPORTED,
                               "%s over MPI: expected up to %llu elements per rank, got "
                               "%llu",
                               choir__kind_name((choir__kind)m->stamp.kind),
                               (unsigned long long)most, (unsigned long long)count);
}

static choir_status reduce_scatter(choir__mpi *m, const choir__call *call, const native *n)
{
    int64_t count = (int64_t)call->stamp.count, all = count * m->base.world;
    size_t size = choir_dtype_size((choir_dtype)call->stamp.dtype);
    size_t part = (size_t)count * (n->wide ? 4 : size);
    /* The result may overlap the input, so it goes to the engine's own memory first. */
    if (check_total(m, call->stamp.count) != CHOIR_OK ||
        choir__mpi_room(m, (n->wide ? 4 * (size_t)all : 0) + part) != CHOIR_OK)
        return m->base.failed;
    const char *in = widened(m, n, call->in, all);
    char *got = m->work + (n->wide ? 4 * (size_t)all : 0);
    if (CHOIR__MPI_RUN(m, MPI_Ireduce_scatter_block(in, got, (int)count, n->type, n->op,
                              m->comm, &request_)) != CHOIR_OK)
        return m->base.failed;
    settle(m, call, n, call->out, got, count);
    if (!n->wide && count)
        memcpy(call->out, got, part);
    choir__mpi_count_bytes(m, (size_t)(all - count) * size);
    return CHOIR_OK;
}

choir_status choir__mpi_native(choir__mpi *m, const choir__call *call)
{
    native n = native_of(&call->stamp);
    if (choir__mpi_enter(m, &call->stamp, NULL) != CHOIR_OK)
        return m->base.failed;
    if (call->stamp.kind == CHOIR__REDUCE_SCATTER)
        return reduce_scatter(m, call, &n);
    return reduce(m, call, &n);
}
