/* Helpers of the collectives over MPI: counts, element types, room for peers' data. */
#include "comm/mpi/mpi.h"

#include <stdlib.h>

void choir__mpi_count_bytes(choir__mpi *m, size_t bytes)
{
    atomic_fetch_add_explicit(&m->base.bytes, bytes, memory_order_relaxed);
}

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

MPI_Datatype choir__mpi_carrier(size_t size)
{
    return size == 8   ? MPI_INT64_T
           : size == 4 ? MPI_INT32_T
           : size == 2 ? MPI_INT16_T
                       : MPI_BYTE;
}

/* MPI's counts and offsets are int. */
choir_status choir__mpi_check_total(choir__mpi *m, uint64_t count)
{
    uint64_t most = INT32_MAX / (unsigned)m->base.world;
    return count <= most ? CHOIR_OK
                         : choir__mpi_fail(m, CHOIR_ERR_UNSUPPORTED,
                               "%s over MPI: expected up to %llu elements per rank, got "
                               "%llu",
                               choir__kind_name((choir__kind)m->stamp.kind),
                               (unsigned long long)most, (unsigned long long)count);
}
