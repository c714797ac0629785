/* Entering a call: all ranks have arrived, and their calls are compared before any data move.
 *
 * Up to PAIRS_MAX ranks each send every other their stamp. After this one exchange each rank
 * knows what all others called. These messages may differ in length, so a small call's data
 * travel with them, each rank's own part for it. Among more ranks that would be too many
 * messages; an all-gather of stamps with little room behind them takes its place.
 *
 * The message of a mismatch compares with rank 0, so that it is the same on all ranks. */
#include "comm/mpi/mpi.h"

#include <stdio.h>
#include <string.h>

enum { PAIRS_MAX = 16, GATHERED = 256 /* bytes */ };

static size_t stride(const choir__mpi *m)
{
    return m->base.world <= PAIRS_MAX ? CHOIR__MPI_ENTRY : GATHERED;
}

size_t choir__mpi_parcel_room(const choir__mpi *m, bool each_its_own)
{
    if (m->base.world > PAIRS_MAX && each_its_own)
        return 0;
    return stride(m) - sizeof(choir__stamp);
}

const char *choir__mpi_parcel_of(const choir__mpi *m, int rank)
{
    return m->entries + (size_t)rank * stride(m) + sizeof(choir__stamp);
}

static choir_status mismatch(
    choir__mpi *m, int rank, const choir__stamp *theirs, const choir__stamp *zero)
{
    char there[CHOIR__STAMP_TEXT], here[CHOIR__STAMP_TEXT], numbers[64] = "";
    if (theirs->seq != zero->seq)
        snprintf(numbers, sizeof numbers, " (calls number %u and %u)", theirs->seq, zero->seq);
    else if (theirs->algorithm != zero->algorithm)
        snprintf(numbers, sizeof numbers, " (algorithms %s and %s)",
            choir__algorithm_name((choir__algorithm)theirs->algorithm),
            choir__algorithm_name((choir__algorithm)zero->algorithm));
    m->told = true; /* all ranks detect it */
    return choir__mpi_fail(m, CHOIR_ERR_MISMATCH, "rank %d called %s while rank 0 called %s%s",
        rank, choir__stamp_text(theirs, there), choir__stamp_text(zero, here), numbers);
}

static choir_status compare(choir__mpi *m)
{
    choir__stamp zero, theirs;
    memcpy(&zero, m->entries, sizeof zero);
    for (int r = 1; r < m->base.world; r++) {
        memcpy(&theirs, m->entries + (size_t)r * stride(m), sizeof theirs);
        if (memcmp(&theirs, &zero, sizeof zero) != 0)
            return mismatch(m, r, &theirs, &zero);
    }
    m->entered = true;
    return CHOIR_OK;
}

/* Writes the entry for rank r and returns its size. */
static size_t write_entry(
    char *entry, const choir__stamp *stamp, const choir__mpi_parcel *parcel, int r)
{
    memcpy(entry, stamp, sizeof *stamp);
    if (!parcel || !parcel->bytes)
        return sizeof *stamp;
    memcpy(entry + sizeof *stamp, parcel->data + (size_t)r * parcel->stride, parcel->bytes);
    return sizeof *stamp + parcel->bytes;
}

static int exchange(choir__mpi *m, const choir__stamp *stamp, const choir__mpi_parcel *parcel)
{
    int rc = MPI_SUCCESS, world = m->base.world, me = m->base.rank;
    bool one_for_all = !parcel || !parcel->stride;
    size_t bytes = 0;
    for (int i = 1; i < world && !rc; i++) {
        int r = (me + i) % world;
        rc = MPI_Irecv(m->entries + (size_t)r * CHOIR__MPI_ENTRY, CHOIR__MPI_ENTRY, MPI_BYTE, r,
            CHOIR__TAG_ENTRY, m->comm, &m->requests[r]);
    }
    for (int i = 1; i < world && !rc; i++) {
        int r = (me + i) % world;
        char *entry = m->sent + (one_for_all ? 0 : (size_t)r * CHOIR__MPI_ENTRY);
        if (!one_for_all || i == 1)
            bytes = write_entry(entry, stamp, parcel, r);
        rc = MPI_Isend(
            entry, (int)bytes, MPI_BYTE, r, CHOIR__TAG_ENTRY, m->comm, &m->requests[world + r]);
    }
    return rc;
}

choir_status choir__mpi_enter(
    choir__mpi *m, const choir__stamp *stamp, const choir__mpi_parcel *parcel)
{
    MPI_Request request;
    int rc, world = m->base.world;
    if (choir__mpi_abandoned())
        return choir__mpi_fail(m, CHOIR_ERR_STATE,
            "another group of this process failed with transfers under way");
    m->stamp = *stamp;
    m->entered = false;
    write_entry(m->entries + (size_t)m->base.rank * stride(m), stamp, parcel, m->base.rank);
    if (world == 1)
        return CHOIR_OK;
    choir__mpi_count_bytes(m, parcel ? (size_t)(world - 1) * parcel->bytes : 0);
    if (world <= PAIRS_MAX) {
        choir__mpi_lock();
        rc = exchange(m, stamp, parcel);
        choir__mpi_unlock();
        if (rc)
            return choir__mpi_error(m, rc);
        if (choir__mpi_wait(m, m->requests, 2 * world) != CHOIR_OK)
            return m->base.failed;
    } else {
        choir__mpi_lock();
        rc = MPI_Iallgather(
            MPI_IN_PLACE, 0, MPI_BYTE, m->entries, GATHERED, MPI_BYTE, m->comm, &request);
        choir__mpi_unlock();
        if (choir__mpi_finish(m, rc, request) != CHOIR_OK)
            return m->base.failed;
    }
    return compare(m);
}
