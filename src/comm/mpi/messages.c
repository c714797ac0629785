/* Messages between two ranks: messages that users send, and messages of comm/pattern's
 * schedules.
 *
 * A schedule's messages belong to a call that all ranks have entered, so their sizes are known
 * to agree, and they carry only data. A user's message has a head, which describes the data and
 * which the receiver compares; few data travel behind it. Larger data are a message of their
 * own, straight into the caller's memory; both receives are posted at once. */
#include "comm/mpi/mpi.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 30, /* bytes per message: MPI counts in int */
    ENTRY = 4032,    /* bytes of a head and the data behind it: MPI sends this much eagerly */
};

typedef struct head {
    uint64_t count;
    uint32_t dtype, pad;
} head;

enum { INLINE = ENTRY - (int)sizeof(head) };

typedef struct parcel {
    choir__stamp stamp;
    char *data; /* receive: the caller's memory */
    size_t bytes;
    bool headed, receives, checked;
    char *entry;            /* ENTRY bytes, if headed */
    int count;              /* number of requests */
    MPI_Request requests[]; /* the first is the head's */
} parcel;

static bool is_headed(const choir__stamp *stamp)
{
    return stamp->kind == CHOIR__SEND || stamp->kind == CHOIR__RECEIVE;
}

static parcel *wrap(
    const choir__stamp *stamp, void *data, size_t bytes, bool receives, choir__request *request)
{
    bool headed = is_headed(stamp);
    size_t pieces = headed && bytes <= INLINE ? 0 : (bytes + PIECE - 1) / PIECE;
    int count = (int)pieces + headed;
    parcel *p = choir__calloc(1, sizeof *p + (size_t)count * sizeof *p->requests);
    *p = (parcel){.stamp = *stamp,
        .data = data,
        .bytes = bytes,
        .headed = headed,
        .receives = receives,
        .entry = headed ? choir__calloc(1, ENTRY) : NULL,
        .count = count};
    for (int i = 0; i < count; i++)
        p->requests[i] = MPI_REQUEST_NULL;
    request->handle = p;
    request->left = bytes;
    request->done = false;
    return p;
}

static void unwrap(choir__request *request)
{
    parcel *p = request->handle;
    request->handle = NULL;
    if (p)
        free(p->entry);
    free(p);
}

static size_t piece(const parcel *p, int i)
{
    size_t at = (size_t)i * PIECE;
    return p->bytes - at < PIECE ? p->bytes - at : PIECE;
}

choir_status choir__mpi_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__mpi *m = (choir__mpi *)engine;
    parcel *p = wrap(stamp, (void *)(uintptr_t)data, bytes, false, request);
    int rc = MPI_SUCCESS, next = 0;
    request->peer = peer;
    choir__mpi_lock();
    if (p->headed) {
        bool within = bytes <= INLINE;
        *(head *)(void *)p->entry = (head){.count = stamp->count, .dtype = stamp->dtype};
        if (within && bytes)
            memcpy(p->entry + sizeof(head), data, bytes);
        rc = MPI_Isend(p->entry, (int)(sizeof(head) + (within ? bytes : 0)), MPI_BYTE, peer,
            CHOIR__TAG_HEAD, m->comm, &p->requests[next++]);
    }
    for (int i = 0; next < p->count && !rc; i++)
        rc = MPI_Isend(p->data + (size_t)i * PIECE, (int)piece(p, i), MPI_BYTE, peer,
            CHOIR__TAG_DATA, m->comm, &p->requests[next++]);
    choir__mpi_unlock();
    choir__mpi_count_bytes(m, bytes);
    return rc ? choir__mpi_error(m, rc) : CHOIR_OK;
}

choir_status choir__mpi_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__mpi *m = (choir__mpi *)engine;
    parcel *p = wrap(stamp, data, bytes, true, request);
    int rc = MPI_SUCCESS, next = 0;
    request->peer = peer;
    choir__mpi_lock();
    if (p->headed)
        rc = MPI_Irecv(
            p->entry, ENTRY, MPI_BYTE, peer, CHOIR__TAG_HEAD, m->comm, &p->requests[next++]);
    for (int i = 0; next < p->count && !rc; i++)
        rc = MPI_Irecv(p->data + (size_t)i * PIECE, (int)piece(p, i), MPI_BYTE, peer,
            CHOIR__TAG_DATA, m->comm, &p->requests[next++]);
    choir__mpi_unlock();
    return rc ? choir__mpi_error(m, rc) : CHOIR_OK;
}

/* --- waiting --- */

static void mismatch(choir__mpi *m, const parcel *p, int peer, const head *h)
{
    choir__engine_fail(&m->base, CHOIR_ERR_MISMATCH,
        "rank %d sent %llu %s to rank %d, which receives %llu %s", peer,
        (unsigned long long)h->count, choir_dtype_name((choir_dtype)h->dtype), m->base.rank,
        (unsigned long long)p->stamp.count, choir_dtype_name((choir_dtype)p->stamp.dtype));
}

/* Compares a head that has arrived, and copies the data behind it. */
static void check(choir__mpi *m, parcel *p, int peer)
{
    const head *h = (const head *)(const void *)p->entry;
    p->checked = true;
    if (h->count != p->stamp.count || h->dtype != p->stamp.dtype)
        mismatch(m, p, peer, h);
    else if (p->bytes <= INLINE && p->bytes)
        memcpy(p->data, p->entry + sizeof *h, p->bytes);
}

static bool progress(choir__mpi *m, choir__request *request)
{
    parcel *p = request->handle;
    bool all = true;
    for (int i = 0, done; i < p->count && m->base.failed == CHOIR_OK; i++) {
        if (p->requests[i] != MPI_REQUEST_NULL) {
            int rc = MPI_Test(&p->requests[i], &done, MPI_STATUS_IGNORE);
            if (rc && !(p->headed && !p->checked)) /* otherwise the head shows the mismatch */
                choir__engine_fail(&m->base, CHOIR_ERR_IO, "MPI: a message failed (%d)", rc);
            all = all && done && !rc;
        }
        if (i == 0 && p->headed && p->receives && !p->checked &&
            p->requests[0] == MPI_REQUEST_NULL)
            check(m, p, request->peer);
    }
    return all;
}

typedef struct errand {
    choir__request *requests;
    int count;
    bool *peers; /* (world) whose messages, or answers, are missing */
} errand;

static bool poll_messages(choir__mpi *m, void *what)
{
    errand *e = what;
    bool all = true;
    memset(e->peers, 0, (size_t)m->base.world * sizeof *e->peers);
    for (int i = 0; i < e->count && m->base.failed == CHOIR_OK; i++) {
        choir__request *r = &e->requests[i];
        r->done = r->done || progress(m, r);
        if (!r->done) {
            e->peers[r->peer] = true;
            all = false;
        }
    }
    return all;
}

static void finish(choir__mpi *m, choir__request *requests, int count)
{
    for (int i = 0; i < count; i++) {
        parcel *p = requests[i].handle;
        if (!p)
            continue;
        if (m->base.failed != CHOIR_OK) {
            choir__mpi_lock();
            choir__mpi_call_back(p->requests, p->count);
            choir__mpi_unlock();
        }
        if (!choir__mpi_abandoned())
            unwrap(&requests[i]);
        requests[i].left = 0;
    }
}

choir_status choir__mpi_wait_all(choir__engine *engine, choir__request *requests, int count)
{
    choir__mpi *m = (choir__mpi *)engine;
    if (count == 0)
        return engine->failed;
    const choir__stamp *stamp = &((parcel *)requests[0].handle)->stamp;
    bool *peers = choir__calloc((size_t)m->base.world, sizeof *peers);
    errand e = {requests, count, peers};
    choir__stamp collective = m->stamp;
    bool headed = is_headed(stamp);
    if (headed) { /* failures then name this call */
        m->stamp = *stamp;
        m->entered = false;
    }
    choir__mpi_until(m, poll_messages, &e, headed ? peers : NULL);
    if (engine->failed != CHOIR_OK)
        choir__mpi_fail(m, engine->failed, "%s", engine->message); /* notifies the peers */
    finish(m, requests, count);
    m->stamp = collective;
    free(peers);
    return engine->failed;
}

choir_status choir__mpi_batch(choir__engine *engine, const choir__call *calls, int count)
{
    choir__request *requests = choir__calloc((size_t)count, sizeof *requests);
    choir_status status = CHOIR_OK;
    int started = 0;
    while (started < count && status == CHOIR_OK) {
        const choir__call *c = &calls[started];
        size_t bytes = (size_t)c->stamp.count * choir_dtype_size((choir_dtype)c->stamp.dtype);
        choir__request *r = &requests[started++];
        status = c->stamp.kind == CHOIR__SEND
                     ? choir__mpi_send(engine, c->stamp.peer, c->in, bytes, &c->stamp, r)
                     : choir__mpi_receive(engine, c->stamp.peer, c->out, bytes, &c->stamp, r);
    }
    if (choir__mpi_wait_all(engine, requests, started) != CHOIR_OK)
        status = engine->failed;
    free(requests);
    return status;
}
