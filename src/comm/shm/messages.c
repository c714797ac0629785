/* Messages between two ranks of a machine.
 *
 * Every ordered pair of ranks has a pipe: a ring of bytes that the sender fills and the
 * receiver empties. Each side has its own counter, which only grows. A message is an envelope
 * (the stamp of its call, its length) and its data, rounded up to cache lines; a long message
 * streams through while both sides copy. All pipes are stored in one sparse memfd: the sender
 * allocates the pages of a pair's ring before its first message, so 64 ranks may have 4032
 * pipes but only use memory for the active ones.
 *
 *   segment  | bells (world) | pipes (world, world) | rings (world, world)
 *
 * A waiting rank polls all its pipes; then it sleeps until its bell rings. A peer that has
 * filled or emptied one of its pipes rings the bell. As in wait.c, either the peer sees the
 * sleeper or the sleeper sees the bytes. */
#include "comm/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/board/board.h"
#include "base/futex.h"
#include "base/files/mapping.h"

enum {
    LINE = 64,
    PIECE = 16 * 1024,      /* bytes copied before the other side is notified */
    RING_LEAST = 8 * 1024,  /* bytes per pair */
    RING_MOST = 128 * 1024, /* fits L2 together with the copied data */
    RINGS_ALL = 16 * 1024 * 1024,
};

static const struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};

typedef struct pipe_ {
    alignas(LINE) _Atomic uint64_t written; /* bytes in total, since the beginning */
    alignas(LINE) _Atomic uint64_t taken;
} pipe_;

typedef struct bell {
    alignas(LINE) _Atomic uint32_t rings; /* a futex */
    _Atomic uint32_t asleep;
} bell;

typedef struct envelope {
    alignas(LINE) choir__stamp stamp;
    uint64_t bytes;
} envelope;

/* A message that this rank has posted, in flight. */
typedef struct parcel {
    struct parcel *next;
    char *data;
    size_t bytes, done;
    const choir__stamp *stamp;
    choir__request *request;
    bool open; /* the envelope has been transferred */
} parcel;

typedef struct queue {
    parcel *first, **end;
} queue;

/* This rank's state of its pipes to and from a peer. */
typedef struct contact {
    queue out, in;
    uint64_t written, seen_taken; /* to the peer */
    uint64_t taken;               /* from the peer */
    bool allocated;
} contact;

struct choir__messages {
    int fd;
    char *segment;
    size_t bytes, ring;
    bell *bells;
    pipe_ *pipes;
    char *rings;
    parcel *unused;
    contact peers[];
};

/* --- the segment --- */

static size_t head_bytes(int world)
{
    size_t n = (size_t)world;
    return (n * sizeof(bell) + n * n * sizeof(pipe_) + 4095) / 4096 * 4096;
}

static size_t ring_bytes(int world)
{
    size_t pairs = (size_t)world * (size_t)(world - 1), ring = RING_MOST;
    while (ring > RING_LEAST && ring * pairs > RINGS_ALL)
        ring /= 2;
    return ring;
}

int choir__messages_memory(int world, char why[200])
{
    size_t rings = (size_t)world * (size_t)world * ring_bytes(world);
    return choir__memfd_new(head_bytes(world), head_bytes(world) + rings, NULL, NULL, why);
}

bool choir__messages_map(choir__shm *shm, int fd)
{
    int world = shm->base.world;
    choir__messages *m = choir__calloc(1, sizeof *m + (size_t)world * sizeof *m->peers);
    m->ring = ring_bytes(world);
    m->bytes = head_bytes(world) + (size_t)world * (size_t)world * m->ring;
    m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    m->segment = m->fd < 0 ? MAP_FAILED
                           : mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->segment == MAP_FAILED) {
        int why = errno;
        if (m->fd >= 0)
            close(m->fd);
        free(m);
        errno = why;
        return false;
    }
    m->bells = (bell *)(void *)m->segment;
    m->pipes = (pipe_ *)(void *)(m->bells + world);
    m->rings = m->segment + head_bytes(world);
    for (int r = 0; r < world; r++) {
        m->peers[r].out.end = &m->peers[r].out.first;
        m->peers[r].in.end = &m->peers[r].in.first;
    }
    shm->messages = m;
    return true;
}

static void free_parcels(parcel *p)
{
    for (parcel *next; p; p = next) {
        next = p->next;
        free(p);
    }
}

void choir__messages_free(choir__messages *m, int world)
{
    if (!m)
        return;
    for (int r = 0; r < world; r++) { /* parcels in flight when the group failed */
        free_parcels(m->peers[r].out.first);
        free_parcels(m->peers[r].in.first);
    }
    free_parcels(m->unused);
    munmap(m->segment, m->bytes);
    close(m->fd);
    free(m);
}

static size_t pair(const choir__shm *shm, int from, int to)
{
    return (size_t)from * (size_t)shm->base.world + (size_t)to;
}

/* --- parcels --- */

static choir_status post(choir__messages *m, queue *q, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    parcel *p = m->unused;
    if (p)
        m->unused = p->next;
    else
        p = choir__alloc(sizeof *p);
    *p = (parcel){
        .data = (char *)(uintptr_t)data, .bytes = bytes, .stamp = stamp, .request = request};
    *q->end = p;
    q->end = &p->next;
    return CHOIR_OK;
}

static void finish(choir__messages *m, queue *q)
{
    parcel *p = q->first;
    p->request->done = true;
    q->first = p->next;
    if (!q->first)
        q->end = &q->first;
    p->next = m->unused;
    m->unused = p;
}

/* --- filling and emptying --- */

static void ring_bell(choir__messages *m, int rank)
{
    bell *b = &m->bells[rank];
    if (atomic_load(&b->asleep)) {
        atomic_fetch_add(&b->rings, 1);
        syscall(SYS_futex, &b->rings, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Returns the bytes of the parcel that one copy can transfer now; the ring has `there`
 * contiguous bytes. */
static size_t piece(const parcel *p, uint64_t at, size_t there, size_t ring)
{
    size_t n = p->bytes - p->done, straight = ring - (size_t)(at % ring);
    n = n < there ? n : there;
    n = n < straight ? n : straight;
    return n < PIECE ? n : PIECE;
}

/* Allocates the pages of the ring to a peer, at the first message. */
static choir_status allocate(choir__shm *shm, int to)
{
    choir__messages *m = shm->messages;
    size_t at = head_bytes(shm->base.world) + pair(shm, shm->base.rank, to) * m->ring;
    int error;
    do
        error = posix_fallocate(m->fd, (off_t)at, (off_t)m->ring);
    while (error == EINTR);
    if (error)
        return choir__shm_fail(shm, CHOIR_ERR_MEMORY,
            "rank %d cannot have %zu bytes for messages to rank %d: %s",
            choir__engine_number(&shm->base, shm->base.rank), m->ring,
            choir__engine_number(&shm->base, to), choir__why(error));
    m->peers[to].allocated = true;
    return CHOIR_OK;
}

/* Sends as many bytes as fit. *moved is set if any did. */
static choir_status push(choir__shm *shm, int to, bool *moved)
{
    choir__messages *m = shm->messages;
    contact *mine = &m->peers[to];
    pipe_ *pipe = &m->pipes[pair(shm, shm->base.rank, to)];
    char *ring = m->rings + pair(shm, shm->base.rank, to) * m->ring;
    if (!mine->allocated && allocate(shm, to) != CHOIR_OK)
        return shm->base.failed;
    for (parcel *p; (p = mine->out.first);) {
        size_t room = m->ring - (size_t)(mine->written - mine->seen_taken);
        size_t wanted = lines(p->bytes - p->done) + (p->open ? 0 : LINE);
        if (room < wanted && room < m->ring / 2) {
            mine->seen_taken = atomic_load_explicit(&pipe->taken, memory_order_acquire);
            room = m->ring - (size_t)(mine->written - mine->seen_taken);
        }
        if (!room)
            break;
        if (!p->open) {
            envelope *e = (envelope *)(void *)(ring + mine->written % m->ring);
            e->stamp = *p->stamp;
            e->bytes = p->bytes;
            mine->written += LINE;
            room -= LINE;
            p->open = true;
        }
        size_t n = piece(p, mine->written, room, m->ring);
        if (n)
            memcpy(ring + mine->written % m->ring, p->data + p->done, n);
        p->done += n;
        mine->written += lines(n);
        atomic_store(&pipe->written, mine->written);
        ring_bell(m, to);
        *moved = true;
        if (p->done == p->bytes) {
            atomic_fetch_add_explicit(&shm->base.bytes, p->bytes, memory_order_relaxed);
            finish(m, &mine->out);
        }
    }
    return CHOIR_OK;
}

static choir_status mismatch(choir__shm *shm, int from, const parcel *p, const envelope *e)
{
    char there[CHOIR__STAMP_TEXT], here[CHOIR__STAMP_TEXT], numbers[64] = "";
    choir__stamp called = choir__stamp_of(*p->stamp, shm->base.rank, from);
    choir__stamp_text(&e->stamp, there);
    choir__stamp_text(&called, here);
    if (e->stamp.seq != p->stamp->seq)
        snprintf(
            numbers, sizeof numbers, " (calls number %u and %u)", e->stamp.seq, p->stamp->seq);
    if (memcmp(&e->stamp, p->stamp, sizeof e->stamp) == 0)
        return choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
            "%s: rank %d sends %zu bytes where rank %d expects %zu", here,
            choir__engine_number(&shm->base, from), (size_t)e->bytes,
            choir__engine_number(&shm->base, shm->base.rank), p->bytes);
    return choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
        "rank %d called %s while rank %d called %s%s", choir__engine_number(&shm->base, from),
        there, choir__engine_number(&shm->base, shm->base.rank), here, numbers);
}

/* Receives the bytes that have arrived. */
static choir_status pull(choir__shm *shm, int from, bool *moved)
{
    choir__messages *m = shm->messages;
    contact *theirs = &m->peers[from];
    pipe_ *pipe = &m->pipes[pair(shm, from, shm->base.rank)];
    const char *ring = m->rings + pair(shm, from, shm->base.rank) * m->ring;
    for (parcel *p; (p = theirs->in.first);) {
        uint64_t written = atomic_load_explicit(&pipe->written, memory_order_acquire);
        size_t there = (size_t)(written - theirs->taken);
        if (!there)
            break;
        if (!p->open) {
            const envelope *e =
                (const envelope *)(const void *)(ring + theirs->taken % m->ring);
            if (memcmp(&e->stamp, p->stamp, sizeof e->stamp) != 0 || e->bytes != p->bytes)
                return mismatch(shm, from, p, e);
            theirs->taken += LINE;
            there -= LINE;
            p->open = true;
        }
        size_t n = piece(p, theirs->taken, there, m->ring);
        if (n)
            memcpy(p->data + p->done, ring + theirs->taken % m->ring, n);
        p->done += n;
        theirs->taken += lines(n);
        atomic_store(&pipe->taken, theirs->taken);
        ring_bell(m, from);
        *moved = true;
        if (p->done == p->bytes)
            finish(m, &theirs->in);
    }
    return CHOIR_OK;
}

static choir_status progress(choir__shm *shm, bool *moved)
{
    choir__messages *m = shm->messages;
    for (int i = 1; i < shm->base.world; i++) {
        int r = (shm->base.rank + i) % shm->base.world;
        if ((m->peers[r].in.first && pull(shm, r, moved) != CHOIR_OK) ||
            (m->peers[r].out.first && push(shm, r, moved) != CHOIR_OK))
            return shm->base.failed;
    }
    return CHOIR_OK;
}

/* --- the engine's functions --- */

choir_status choir__shm_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__shm *shm = (choir__shm *)engine;
    queue *q = &shm->messages->peers[peer].out;
    bool moved, first = !q->first;
    post(shm->messages, q, data, bytes, stamp, request);
    return first ? push(shm, peer, &moved) : CHOIR_OK;
}

choir_status choir__shm_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__shm *shm = (choir__shm *)engine;
    return post(shm->messages, &shm->messages->peers[peer].in, data, bytes, stamp, request);
}

/* Reports a late call. Of the ranks that it waits for, directly or not, the sentence names
 * those that have not entered the call; else those that are stopped; else the peers whose
 * messages are missing. */
static choir_status late(choir__shm *shm, const int *pending, int count)
{
    int some[CHOIR__MAX_WORLD], found = 0;
    for (int r = 0; r < shm->base.world && shm->call.seq; r++)
        if (r != shm->base.rank && !choir__shm_came(shm, r))
            some[found++] = r;
    for (int r = 0; r < shm->base.world && !found; r++)
        if (choir__process_state(shm->pids[r]) == 'T')
            some[found++] = r;
    return found ? choir__shm_late(shm, some, found) : choir__shm_late(shm, pending, count);
}

/* Checks the peers on behalf of a waiter that has slept for a while. A rank that died breaks
 * the collective, whatever it was waiting for; a rank that has left breaks it only for ranks
 * that still wait for it. */
static choir_status ask_after_peers(choir__shm *shm, double waited)
{
    int pending[CHOIR__MAX_WORLD], count = 0, culprit = -1;
    if (choir__shm_fault(shm) != CHOIR_OK ||
        (shm->call.seq <= 1 && choir__shm_last_words(shm) != CHOIR_OK))
        return shm->base.failed;
    for (int r = 0; r < shm->base.world; r++) {
        const contact *p = &shm->messages->peers[r];
        bool awaited = p->out.first || p->in.first, moved = false;
        if (r == shm->base.rank || (!awaited && !shm->call.seq))
            continue;
        bool gone = awaited ? choir__shm_gone(shm, r)
                            : !choir__shm_left(shm, r) && choir__shm_dead(shm, r);
        if (gone) {
            if (progress(shm, &moved) != CHOIR_OK || moved) /* the last bytes of the message */
                return shm->base.failed;
            culprit = choir__shm_culprit(shm, culprit, r);
        } else if (choir__shm_compare(shm, r) != CHOIR_OK)
            return shm->base.failed;
        if (awaited)
            pending[count++] = r;
    }
    if (culprit >= 0)
        return choir__shm_lost(shm, culprit);
    return waited > shm->base.timeout_s ? late(shm, pending, count) : CHOIR_OK;
}

/* Sleeps until the bell rings, or for a moment. */
static choir_status sleep_on(choir__shm *shm, bool *moved)
{
    bell *b = &shm->messages->bells[shm->base.rank];
    uint32_t rings = atomic_load(&b->rings);
    atomic_store(&b->asleep, 1);
    choir_status status = progress(shm, moved);
    if (status == CHOIR_OK && !*moved)
        syscall(SYS_futex, &b->rings, FUTEX_WAIT, rings, &nap, NULL, 0);
    atomic_store(&b->asleep, 0);
    return status;
}

choir_status choir__shm_wait_messages(
    choir__engine *engine, choir__request *requests, int count)
{
    choir__shm *shm = (choir__shm *)engine;
    double asked = 0, waited = 0; /* asked 0: not slept yet */
    int done = 0, looks = 0;
    for (;;) {
        bool moved = false;
        if (progress(shm, &moved) != CHOIR_OK)
            return shm->base.failed;
        while (done < count && requests[done].done)
            done++;
        if (done == count)
            return CHOIR_OK;
        if (moved) {
            looks = 0, asked = waited = 0;
        } else if (++looks <= shm->spins) {
            choir__pause();
        } else if (looks <= shm->spins + shm->yields) {
            sched_yield();
        } else {
            asked = asked != 0 ? asked : choir__now();
            if (sleep_on(shm, &moved) != CHOIR_OK)
                return shm->base.failed;
            double now = choir__now();
            if (moved || now - asked < 0.04)
                continue;
            waited += choir__shm_slept(now - asked);
            asked = now;
            if (ask_after_peers(shm, waited) != CHOIR_OK)
                return shm->base.failed;
        }
    }
}

/* --- calls that run by messages --- */

choir_status choir__shm_by_messages(choir__engine *engine, const choir__call *call)
{
    choir__shm *shm = (choir__shm *)engine;
    choir__shm_announce(shm, &call->stamp);
    return choir__shm_tell(shm, choir__message_run(engine, call));
}

choir_status choir__shm_batch(choir__engine *engine, const choir__call *calls, int count)
{
    choir__shm *shm = (choir__shm *)engine;
    shm->call = calls[0].stamp; /* not numbered */
    return choir__shm_tell(shm, choir__message_batch(engine, calls, count));
}
