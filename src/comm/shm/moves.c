/* Collectives that move data and compute nothing: broadcast, gather, all_gather, scatter,
 * all_to_all.
 *
 * They differ in the senders, the receivers, and the location of a pair's part at both ends;
 * one loop runs all of them. Staged, a sender stages one piece that all ranks read, or one
 * piece per receiver. Direct, receivers pull from memory that senders share, or senders push
 * into memory that receivers share; if both are possible, the one is chosen in which all ranks
 * work at the same time. */
#include "comm/shm/shm.h"

#include <inttypes.h>
#include <string.h>

typedef struct move {
    choir__shm *shm;
    const choir__call *call;
    choir__kind kind;
    bool same, uneven; /* `same`: all receivers get the same bytes; `uneven`: parts by counts */
    size_t size, each; /* bytes of an element; bytes of a part */
    int rank, world;
} move;

static bool sends(const move *m, int rank)
{
    bool one = m->kind == CHOIR__BROADCAST || m->kind == CHOIR__SCATTER;
    return !one || rank == choir__engine_rank(&m->shm->base, m->call->stamp.root);
}

static bool receives(const move *m, int rank)
{
    return m->kind != CHOIR__GATHER ||
           rank == choir__engine_rank(&m->shm->base, m->call->stamp.root);
}

/* --- a pair's part: from sender s to receiver d --- */

static size_t counted(const move *m, int s, int d)
{
    return (size_t)choir__shm_details(m->shm, s)->gives[d] * m->size;
}

static size_t part_bytes(const move *m, int s, int d)
{
    return m->uneven ? counted(m, s, d) : m->each;
}

/* Returns where the part begins in the sender's input. */
static size_t given_at(const move *m, int s, int d)
{
    size_t at = 0;
    if (!m->uneven)
        return m->same ? 0 : (size_t)d * m->each;
    for (int k = 0; k < d; k++)
        at += counted(m, s, k);
    return at;
}

/* Returns where the part begins in the receiver's output. */
static size_t kept_at(const move *m, int s, int d)
{
    size_t at = 0;
    if (!m->uneven)
        return m->kind == CHOIR__BROADCAST || m->kind == CHOIR__SCATTER ? 0
                                                                        : (size_t)s * m->each;
    for (int k = 0; k < s; k++)
        at += counted(m, k, d);
    return at;
}

/* Return the sizes of a rank's input and output, in bytes; 0 if it has none. */
static size_t given_bytes(const move *m, int rank)
{
    size_t all = m->uneven ? given_at(m, rank, m->world) : m->each * (size_t)m->world;
    return !sends(m, rank) ? 0 : m->same ? m->each : all;
}

static size_t kept_bytes(const move *m, int rank)
{
    size_t all = m->uneven ? kept_at(m, m->world, rank) : m->each * (size_t)m->world;
    bool one = m->kind == CHOIR__BROADCAST || m->kind == CHOIR__SCATTER;
    return !receives(m, rank) ? 0 : one ? m->each : all;
}

/* Checks that both ends of an uneven exchange use the same counts. Every rank checks all pairs,
 * so all ranks report the same. */
static choir_status compare_counts(const move *m)
{
    for (int s = 0; s < m->world; s++)
        for (int d = 0; d < m->world; d++) {
            int64_t given = choir__shm_details(m->shm, s)->gives[d];
            int64_t wanted = choir__shm_details(m->shm, d)->wants[s];
            if (given != wanted)
                return choir__shm_fail(m->shm, CHOIR_ERR_MISMATCH,
                    "all_to_all: rank %d has %" PRId64
                    " %s for rank %d, which expects %" PRId64,
                    choir__engine_number(&m->shm->base, s), given,
                    choir_dtype_name((choir_dtype)m->call->stamp.dtype),
                    choir__engine_number(&m->shm->base, d), wanted);
        }
    return CHOIR_OK;
}

/* --- staged --- */

static size_t longest_part(const move *m)
{
    size_t longest = m->each;
    for (int s = 0; s < m->world && m->uneven; s++)
        for (int d = 0; d < m->world; d++)
            if (counted(m, s, d) > longest)
                longest = counted(m, s, d);
    return longest;
}

static size_t piece_of(size_t bytes, size_t at, size_t piece)
{
    return at >= bytes ? 0 : bytes - at < piece ? bytes - at : piece;
}

static void put(const move *m, char *staging, size_t at, size_t piece)
{
    const char *in = m->call->in;
    if (m->same) {
        size_t n = piece_of(m->each, at, piece);
        if (n)
            memcpy(staging, in + at, n);
        return;
    }
    for (int i = 1; i < m->world; i++) {
        int d = (m->rank + i) % m->world;
        size_t n = receives(m, d) ? piece_of(part_bytes(m, m->rank, d), at, piece) : 0;
        if (n)
            memcpy(staging + (size_t)d * piece, in + given_at(m, m->rank, d) + at, n);
    }
}

static void take(const move *m, uint32_t buffer, size_t at, size_t piece)
{
    char *out = m->call->out;
    for (int i = 1; i < m->world; i++) {
        int s = (m->rank + i) % m->world;
        size_t n = sends(m, s) ? piece_of(part_bytes(m, s, m->rank), at, piece) : 0;
        const char *staging = choir__shm_staging(m->shm, s, buffer);
        if (n)
            memcpy(out + kept_at(m, s, m->rank) + at,
                staging + (m->same ? 0 : (size_t)m->rank * piece), n);
    }
}

static size_t piece_bytes(const move *m)
{
    return m->same ? CHOIR__CHUNK : (size_t)CHOIR__CHUNK / (size_t)m->world / 64 * 64;
}

static void stage(const move *m, size_t at, uint32_t buffer)
{
    if (sends(m, m->rank) && m->world > 1)
        put(m, choir__shm_staging(m->shm, m->rank, buffer), at, piece_bytes(m));
}

static choir_status staged(const move *m, choir__shm_progress progress)
{
    choir__shm *shm = m->shm;
    size_t piece = piece_bytes(m), at = 0, longest = longest_part(m);
    do {
        bool done = at == 0 && progress == CHOIR__STAGED;
        uint32_t buffer = (done ? shm->turns - 1 : shm->turns++) % 2;
        if (!done) {
            stage(m, at, buffer);
            if (choir__shm_step(shm, &m->call->stamp, at == 0 && progress == CHOIR__FRESH) !=
                CHOIR_OK)
                return shm->base.failed;
        }
        if (receives(m, m->rank))
            take(m, buffer, at, piece);
        at += piece;
    } while (at < longest);
    if (m->same && sends(m, m->rank))
        choir__shm_prepare(shm, m->each);
    return CHOIR_OK;
}

/* --- direct --- */

/* Returns true if the inputs (given) or the outputs of all ranks are in memory that this rank
 * can reach. The decision uses only published details, so it is equal on all ranks. */
static bool reachable(const move *m, bool given)
{
    for (int r = 0; r < m->world; r++) {
        const choir__details *told = choir__shm_details(m->shm, r);
        bool matters =
            given ? sends(m, r) && given_bytes(m, r) : receives(m, r) && kept_bytes(m, r);
        if (matters && !(given ? told->in : told->out).shared)
            return false;
    }
    return true;
}

/* Returns true if a rank runs in place: an all_to_all would then overwrite data that others
 * have yet to read. */
static bool anyone_in_place(const move *m)
{
    for (int r = 0; r < m->world && m->kind == CHOIR__ALL_TO_ALL; r++) {
        const choir__details *told = choir__shm_details(m->shm, r);
        if (told->in.shared && memcmp(&told->in, &told->out, sizeof told->in) == 0)
            return true;
    }
    return false;
}

static choir_status freed(const move *m, int rank)
{
    return choir__shm_fail(m->shm, CHOIR_ERR_STATE,
        "rank %d uses shared memory that rank %d has freed",
        choir__engine_number(&m->shm->base, rank),
        choir__engine_number(&m->shm->base, m->rank));
}

/* Copies a part, unless it is in place already because all ranks share one result. */
static void copy(char *to, const char *from, size_t bytes)
{
    if (to != from)
        memcpy(to, from, bytes);
}

static choir_status pull(const move *m)
{
    char *out = m->call->out;
    for (int i = 1; i < m->world && receives(m, m->rank); i++) {
        int s = (m->rank + i) % m->world;
        size_t n = sends(m, s) ? part_bytes(m, s, m->rank) : 0;
        if (!n)
            continue;
        const char *in =
            choir__shm_at(m->shm, choir__shm_details(m->shm, s)->in, given_bytes(m, s));
        if (!in)
            return freed(m, s);
        copy(out + kept_at(m, s, m->rank), in + given_at(m, s, m->rank), n);
    }
    return choir__shm_barrier(m->shm);
}

static choir_status push(const move *m)
{
    const char *in = m->call->in;
    for (int i = 1; i < m->world && sends(m, m->rank); i++) {
        int d = (m->rank + i) % m->world;
        size_t n = receives(m, d) ? part_bytes(m, m->rank, d) : 0;
        if (!n)
            continue;
        char *out = choir__shm_at(m->shm, choir__shm_details(m->shm, d)->out, kept_bytes(m, d));
        if (!out)
            return freed(m, d);
        copy(out + kept_at(m, m->rank, d), in + given_at(m, m->rank, d), n);
    }
    return choir__shm_barrier(m->shm);
}

/* Publishes the location of the data, enters the call, and takes the best way. Uneven parts are
 * known only after that. */
static choir_status by_place(const move *m)
{
    choir__shm *shm = m->shm;
    const choir__call *call = m->call;
    choir__details *mine = choir__shm_my_details(shm);
    size_t given = m->uneven ? 0 : given_bytes(m, m->rank);
    size_t kept = m->uneven ? 0 : kept_bytes(m, m->rank);
    for (int r = 0; r < m->world && m->uneven; r++) {
        mine->gives[r] = call->in_counts[r];
        mine->wants[r] = call->out_counts[r];
        given += (size_t)call->in_counts[r] * m->size;
        kept += (size_t)call->out_counts[r] * m->size;
    }
    mine->in = given ? choir__shm_find(shm, call->in, given) : (choir__shm_place){0};
    mine->out = kept ? choir__shm_find(shm, call->out, kept) : (choir__shm_place){0};
    uint32_t buffer = shm->turns++ % 2;
    mine->staged = !m->uneven && !mine->in.shared && !mine->out.shared;
    if (mine->staged)
        stage(m, 0, buffer);
    if (choir__shm_enter(shm, &call->stamp) != CHOIR_OK ||
        (m->uneven && compare_counts(m) != CHOIR_OK))
        return shm->base.failed;
    bool can_pull = !anyone_in_place(m) && reachable(m, true);
    bool can_push = !anyone_in_place(m) && reachable(m, false);
    if (can_push && (m->kind == CHOIR__GATHER || !can_pull))
        return push(m);
    if (can_pull)
        return pull(m);
    return staged(m, choir__shm_all_staged(shm) ? CHOIR__STAGED : CHOIR__ENTERED);
}

choir_status choir__shm_move(choir__shm *shm, const choir__call *call)
{
    move m = {.shm = shm,
        .call = call,
        .kind = (choir__kind)call->stamp.kind,
        .uneven = call->in_counts != NULL,
        .size = choir_dtype_size((choir_dtype)call->stamp.dtype),
        .each = choir__shm_bytes(&call->stamp),
        .rank = shm->base.rank,
        .world = shm->base.world};
    m.same = m.kind != CHOIR__SCATTER && m.kind != CHOIR__ALL_TO_ALL;
    bool small = !m.uneven && m.each < CHOIR__DIRECT_FROM;
    choir_status status = small ? staged(&m, CHOIR__FRESH) : by_place(&m);
    if (status != CHOIR_OK)
        return status;

    size_t sent = 0, received = 0, own = part_bytes(&m, m.rank, m.rank);
    if (own && sends(&m, m.rank) && receives(&m, m.rank)) {
        const char *in = (const char *)call->in + given_at(&m, m.rank, m.rank);
        char *out = (char *)call->out + kept_at(&m, m.rank, m.rank);
        copy(out, in, own);
    }
    for (int r = 0; r < m.world; r++) {
        sent +=
            r != m.rank && sends(&m, m.rank) && receives(&m, r) ? part_bytes(&m, m.rank, r) : 0;
        received +=
            r != m.rank && receives(&m, m.rank) && sends(&m, r) ? part_bytes(&m, r, m.rank) : 0;
    }
    if (m.same && sent > m.each)
        sent = m.each;
    choir__shm_count(shm, sent > received ? sent : received);
    return CHOIR_OK;
}
