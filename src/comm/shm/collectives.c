/* The collectives of one machine.
 *
 * Private memory goes through the staging areas, chunk by chunk. An all-reduce in which the
 * peers' chunks are few and small lets everyone read all of them and add by itself: one step a
 * chunk, and a small one is done in that single step. Among more ranks each adds its own slice
 * of the chunk, then fetches the others' results: two steps, but a chunk is read once whatever
 * the number of ranks.
 *
 * Data in shared memory is reduced where it lies: each rank reads its slice out of everyone's
 * buffer and writes the sum into all of them.
 *
 * All ways add in the same tree over rank numbers, so the bits do not tell which one was
 * taken. */
#include "comm/reduce.h"
#include "comm/shm/shm.h"

#include <stdlib.h>
#include <string.h>

enum {
    DIRECT_FROM = 16 * 1024,     /* bytes: below, one step beats the two of the direct way */
    REPLICATE_UP_TO = 64 * 1024, /* bytes of all peers */
};

static char *staging(const choir__shm *shm, int rank, uint32_t buffer)
{
    size_t slots = (sizeof(choir__control) + 4095) / 4096 * 4096;
    return (char *)shm->control + slots + ((size_t)rank * 3 + buffer) * CHOIR__CHUNK;
}

static void count_bytes(choir__shm *shm, size_t bytes)
{
    atomic_fetch_add_explicit(&shm->base.bytes, bytes, memory_order_relaxed);
}

/* One step of a collective; its first one compares the calls. */
static choir_status step(choir__shm *shm, const choir__stamp *call, bool first)
{
    return first ? choir__shm_enter(shm, call) : choir__shm_barrier(shm);
}

static size_t bytes_of(const choir__stamp *call)
{
    return (size_t)call->count * choir_dtype_size((choir_dtype)call->dtype);
}

static choir_status broadcast(choir__shm *shm, const choir__call *call)
{
    size_t at = 0, bytes = bytes_of(&call->stamp);
    int root = call->stamp.root;
    void *data = call->out;
    do {
        size_t n = (size_t)choir__min((int64_t)(bytes - at), CHOIR__CHUNK);
        char *chunk = staging(shm, root, shm->turns++ % 2);
        if (shm->base.rank == root && shm->base.world > 1 && n)
            memcpy(chunk, (char *)data + at, n);
        if (step(shm, &call->stamp, at == 0))
            return shm->base.failed;
        if (shm->base.rank != root && n)
            memcpy((char *)data + at, chunk, n);
        at += n;
    } while (at < bytes);
    count_bytes(shm, shm->base.rank != root ? bytes : shm->base.world > 1 ? bytes : 0);
    return CHOIR_OK;
}

static choir_status all_gather(choir__shm *shm, const choir__call *call)
{
    size_t at = 0, bytes = bytes_of(&call->stamp);
    const void *mine = call->in;
    char *all = call->out;
    if (bytes)
        memmove(all + (size_t)shm->base.rank * bytes, mine, bytes);
    mine = all + (size_t)shm->base.rank * bytes;
    do {
        size_t n = (size_t)choir__min((int64_t)(bytes - at), CHOIR__CHUNK);
        uint32_t buffer = shm->turns++ % 2;
        if (shm->base.world > 1 && n)
            memcpy(staging(shm, shm->base.rank, buffer), (const char *)mine + at, n);
        if (step(shm, &call->stamp, at == 0))
            return shm->base.failed;
        for (int i = 1; i < shm->base.world && n; i++) {
            int r = (shm->base.rank + i) % shm->base.world;
            memcpy(all + (size_t)r * bytes + at, staging(shm, r, buffer), n);
        }
        at += n;
    } while (at < bytes);
    count_bytes(shm, (size_t)(shm->base.world - 1) * bytes);
    return CHOIR_OK;
}

/* --- all-reduce --- */

typedef struct job {
    choir__stamp call;
    char *data;
    int64_t count;
    const choir__arith *arith;
    choir__node nodes[CHOIR__MAX_WORLD];
    const char *from[CHOIR__MAX_WORLD];
    char *to[CHOIR__MAX_WORLD];
    choir__reduction reduction; /* of one chunk */
} job;

static void job_init(job *j, const choir__shm *shm, const choir__call *args)
{
    const choir__stamp *call = &args->stamp;
    bool mean = call->op == CHOIR_MEAN;
    j->call = *call;
    j->data = args->out;
    j->count = (int64_t)call->count;
    j->arith = choir__arith_find((choir_dtype)call->dtype, (choir_reduce_op)call->op);
    for (int r = 0; r < shm->base.world; r++)
        j->nodes[r] = (choir__node){r, 1};
    j->reduction = (choir__reduction){.arith = j->arith,
        .nodes = j->nodes,
        .from = j->from,
        .to = j->to,
        .sources = shm->base.world,
        .outputs = 1,
        .scale = mean ? 1.0 / shm->base.world : 1,
        .divisor = mean ? shm->base.world : 1};
}

/* Everyone adds everything: one step a chunk. */
static choir_status replicated(choir__shm *shm, job *j, bool entered)
{
    const size_t size = j->arith->size;
    int64_t first = 0;
    do {
        int64_t n = choir__min(j->count - first, (int64_t)(CHOIR__CHUNK / size));
        char *mine = j->data + (size_t)first * size;
        uint32_t buffer = shm->turns++ % 2;
        if (n)
            memcpy(staging(shm, shm->base.rank, buffer), mine, (size_t)n * size);
        if (step(shm, &j->call, first == 0 && !entered))
            return shm->base.failed;
        for (int r = 0; r < shm->base.world; r++)
            j->from[r] = r == shm->base.rank ? mine : staging(shm, r, buffer);
        j->to[0] = mine;
        choir__reduce(&j->reduction, shm->scratch, 0, n);
        first += n;
    } while (first < j->count);
    count_bytes(shm, (size_t)(shm->base.world - 1) * (size_t)j->count * size);
    return CHOIR_OK;
}

/* Each adds its slice of a chunk: two steps. The single result buffer is free again when all
 * ranks have published the next chunk's first step. */
static choir_status sliced(choir__shm *shm, job *j)
{
    const size_t size = j->arith->size;
    size_t fetched = 0;
    for (int64_t first = 0; first < j->count;) {
        int64_t n = choir__min(j->count - first, (int64_t)(CHOIR__CHUNK / size)), lo, hi;
        char *mine = j->data + (size_t)first * size;
        uint32_t buffer = shm->turns++ % 2;
        memcpy(staging(shm, shm->base.rank, buffer), mine, (size_t)n * size);
        if (choir__shm_barrier(shm))
            return shm->base.failed;
        for (int r = 0; r < shm->base.world; r++)
            j->from[r] = staging(shm, r, buffer);
        j->to[0] = staging(shm, shm->base.rank, 2);
        choir__reduce_slice(n, size, shm->base.rank, shm->base.world, &lo, &hi);
        choir__reduce(&j->reduction, shm->scratch, lo, hi);
        fetched += (size_t)(shm->base.world - 1) * (size_t)(hi - lo) * size;
        if (choir__shm_barrier(shm))
            return shm->base.failed;
        for (int i = 0; i < shm->base.world; i++) {
            int r = (shm->base.rank + i) % shm->base.world;
            choir__reduce_slice(n, size, r, shm->base.world, &lo, &hi);
            memcpy(mine + (size_t)lo * size, staging(shm, r, 2) + (size_t)lo * size,
                (size_t)(hi - lo) * size);
            fetched += i ? (size_t)(hi - lo) * size : 0;
        }
        first += n;
    }
    count_bytes(shm, fetched);
    return CHOIR_OK;
}

/* Whether all ranks' data lie in their regions of one choir__shared: then they all know it,
 * and none can have unmapped it. */
static choir__shared *common_shared(choir__shm *shm, const char *from[])
{
    const choir__slot *slots = shm->control->slots;
    uint32_t turn = shm->base.seq % 2;
    uint64_t id = slots[0].places[turn].shared;
    for (int r = 0; r < shm->base.world; r++)
        if (!id || slots[r].places[turn].shared != id)
            return NULL;
    choir__shared *shared = choir__shm_shared(shm, id);
    for (int r = 0; r < shm->base.world; r++)
        from[r] = shared->regions[r].at + slots[r].places[turn].offset;
    return shared;
}

/* My slice out of all buffers, into all buffers; my own first. */
static choir_status direct(choir__shm *shm, choir__reduction *r, int64_t count)
{
    int64_t lo, hi;
    size_t size = r->arith->size;
    r->outputs = shm->base.world;
    r->stream = (size_t)count * size * (size_t)shm->base.world > shm->cache_bytes;
    choir__reduce_slice(count, size, shm->base.rank, shm->base.world, &lo, &hi);
    choir__reduce(r, shm->scratch, lo, hi);
    count_bytes(shm, 2 * (size_t)(shm->base.world - 1) * (size_t)(hi - lo) * size);
    return choir__shm_barrier(shm);
}

static choir_status all_reduce(choir__shm *shm, const choir__call *call)
{
    size_t bytes = bytes_of(&call->stamp);
    if (shm->base.world == 1)
        return choir__shm_enter(shm, &call->stamp);
    job j;
    job_init(&j, shm, call);
    bool few = shm->base.world <= 3 || (size_t)(shm->base.world - 1) * bytes <= REPLICATE_UP_TO;
    if (bytes < DIRECT_FROM && few)
        return replicated(shm, &j, false);

    shm->me->places[shm->base.seq % 2] = choir__shm_find(shm, call->out, bytes);
    if (choir__shm_enter(shm, &call->stamp))
        return shm->base.failed;
    if (common_shared(shm, j.from)) {
        for (int i = 0; i < shm->base.world; i++)
            j.to[i] = (char *)(uintptr_t)j.from[(shm->base.rank + i) % shm->base.world];
        return direct(shm, &j.reduction, j.count);
    }
    return few ? replicated(shm, &j, true) : sliced(shm, &j);
}

/* --- the tree over micro-batches --- */

/* Adds rank's nodes to the list that has `count` so far. */
static int add_nodes(
    choir__shm *shm, const choir__call *call, int rank, const char *at, int count)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    choir__tree_run(call->stamp.root, rank, shm->base.world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, nodes);
    if ((size_t)(count + n) > shm->nodes_room) {
        shm->nodes_room = 2 * (size_t)(count + n);
        shm->nodes = choir__realloc(shm->nodes, shm->nodes_room * sizeof *shm->nodes);
        shm->sources = choir__realloc(shm->sources, shm->nodes_room * sizeof *shm->sources);
    }
    for (int k = 0; k < n; k++) {
        shm->nodes[count + k] = nodes[k];
        shm->sources[count + k] = at + (size_t)k * call->node_stride;
    }
    return n;
}

/* The nodes of rank, from `at` on, must lie inside its region. */
static bool fits(
    const choir__call *call, const struct choir__region *region, const char *at, int nodes)
{
    size_t offset = (size_t)(at - region->at), bytes = bytes_of(&call->stamp);
    size_t last = offset + (size_t)(nodes ? nodes - 1 : 0) * call->node_stride;
    return offset <= region->bytes && last <= region->bytes && bytes <= region->bytes - last;
}

static choir_status tree_reduce(choir__shm *shm, const choir__call *call)
{
    int count = 0;
    const char *from[CHOIR__MAX_WORLD];
    char *to[CHOIR__MAX_WORLD];
    shm->me->places[shm->base.seq % 2] =
        choir__shm_find(shm, call->out, bytes_of(&call->stamp));
    if (choir__shm_enter(shm, &call->stamp))
        return shm->base.failed;
    if (call->stamp.count == 0)
        return CHOIR_OK;
    const choir__shared *shared = common_shared(shm, from);
    if (!shared)
        return choir__message_run(&shm->base, call);
    for (int r = 0; r < shm->base.world; r++) {
        int n = add_nodes(shm, call, r, from[r], count);
        if (!fits(call, &shared->regions[r], from[r], n))
            return choir__shm_fail(shm, CHOIR_ERR_ARGUMENT,
                "tree_reduce: %d nodes of %llu f32 at %zu, %zu bytes apart, do not fit rank "
                "%d's %zu bytes",
                n, (unsigned long long)call->stamp.count,
                (size_t)(from[r] - shared->regions[r].at), call->node_stride, r,
                shared->regions[r].bytes);
        count += n;
    }
    for (int i = 0; i < shm->base.world; i++)
        to[i] = (char *)(uintptr_t)from[(shm->base.rank + i) % shm->base.world];
    choir__reduction reduction = {.arith = choir__arith_find(CHOIR_F32, CHOIR_SUM),
        .nodes = shm->nodes,
        .from = shm->sources,
        .to = to,
        .sources = count,
        .scale = (double)call->scale,
        .divisor = 1};
    return direct(shm, &reduction, (int64_t)call->stamp.count);
}

/* --- by kind --- */

choir_status choir__shm_run(choir__engine *engine, const choir__call *call)
{
    choir__shm *shm = (choir__shm *)engine;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BARRIER: return choir__shm_enter(shm, &call->stamp);
    case CHOIR__BROADCAST: return broadcast(shm, call);
    case CHOIR__ALL_REDUCE: return all_reduce(shm, call);
    case CHOIR__ALL_GATHER: return all_gather(shm, call);
    case CHOIR__TREE_REDUCE: return tree_reduce(shm, call);
    default: return choir__message_run(engine, call);
    }
}
