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
#include "comm/shm/shm.h"
#include "comm/shm/reduce.h"

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
    atomic_fetch_add_explicit(&shm->bytes, bytes, memory_order_relaxed);
}

/* One step of a collective; its first one compares the calls. */
static choir_status step(choir__shm *shm, const choir__call *call, bool first)
{
    return first ? choir__shm_enter(shm, *call) : choir__shm_barrier(shm);
}

choir_status choir__shm_broadcast(choir__shm *shm, void *data, size_t bytes, int root)
{
    const choir__call call = {.kind = CHOIR__CALL_BROADCAST, .count = bytes, .root = root};
    size_t at = 0;
    do {
        size_t n = (size_t)choir__min((int64_t)(bytes - at), CHOIR__CHUNK);
        char *chunk = staging(shm, root, shm->turns++ % 2);
        if (shm->rank == root && shm->world > 1 && n)
            memcpy(chunk, (char *)data + at, n);
        if (step(shm, &call, at == 0))
            return shm->failed;
        if (shm->rank != root && n)
            memcpy((char *)data + at, chunk, n);
        at += n;
    } while (at < bytes);
    count_bytes(shm, shm->rank != root ? bytes : shm->world > 1 ? bytes : 0);
    return CHOIR_OK;
}

choir_status choir__shm_all_gather(choir__shm *shm, const void *mine, void *all, size_t bytes)
{
    const choir__call call = {.kind = CHOIR__CALL_ALL_GATHER, .count = bytes};
    size_t at = 0;
    if (bytes)
        memmove((char *)all + (size_t)shm->rank * bytes, mine, bytes);
    mine = (char *)all + (size_t)shm->rank * bytes;
    do {
        size_t n = (size_t)choir__min((int64_t)(bytes - at), CHOIR__CHUNK);
        uint32_t buffer = shm->turns++ % 2;
        if (shm->world > 1 && n)
            memcpy(staging(shm, shm->rank, buffer), (const char *)mine + at, n);
        if (step(shm, &call, at == 0))
            return shm->failed;
        for (int i = 1; i < shm->world && n; i++) {
            int r = (shm->rank + i) % shm->world;
            memcpy((char *)all + (size_t)r * bytes + at, staging(shm, r, buffer), n);
        }
        at += n;
    } while (at < bytes);
    count_bytes(shm, (size_t)(shm->world - 1) * bytes);
    return CHOIR_OK;
}

/* --- all-reduce --- */

typedef struct job {
    choir__call call;
    char *data;
    int64_t count;
    const choir__arith *arith;
    choir__node nodes[CHOIR__MAX_WORLD];
    const char *from[CHOIR__MAX_WORLD];
    char *to[CHOIR__MAX_WORLD];
    choir__reduction reduction; /* of one chunk */
} job;

static void job_init(
    job *j, const choir__shm *shm, void *data, int64_t count, const choir__call *call)
{
    bool mean = call->op == CHOIR_MEAN;
    j->call = *call;
    j->data = data;
    j->count = count;
    j->arith = choir__arith_find((choir_dtype)call->dtype, (choir_reduce_op)call->op);
    for (int r = 0; r < shm->world; r++)
        j->nodes[r] = (choir__node){r, 1};
    j->reduction = (choir__reduction){.arith = j->arith,
        .nodes = j->nodes,
        .from = j->from,
        .to = j->to,
        .sources = shm->world,
        .outputs = 1,
        .scale = mean ? 1.0 / shm->world : 1,
        .divisor = mean ? shm->world : 1};
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
            memcpy(staging(shm, shm->rank, buffer), mine, (size_t)n * size);
        if (step(shm, &j->call, first == 0 && !entered))
            return shm->failed;
        for (int r = 0; r < shm->world; r++)
            j->from[r] = r == shm->rank ? mine : staging(shm, r, buffer);
        j->to[0] = mine;
        choir__reduce(&j->reduction, shm->scratch, 0, n);
        first += n;
    } while (first < j->count);
    count_bytes(shm, (size_t)(shm->world - 1) * (size_t)j->count * size);
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
        memcpy(staging(shm, shm->rank, buffer), mine, (size_t)n * size);
        if (choir__shm_barrier(shm))
            return shm->failed;
        for (int r = 0; r < shm->world; r++)
            j->from[r] = staging(shm, r, buffer);
        j->to[0] = staging(shm, shm->rank, 2);
        choir__reduce_slice(n, size, shm->rank, shm->world, &lo, &hi);
        choir__reduce(&j->reduction, shm->scratch, lo, hi);
        fetched += (size_t)(shm->world - 1) * (size_t)(hi - lo) * size;
        if (choir__shm_barrier(shm))
            return shm->failed;
        for (int i = 0; i < shm->world; i++) {
            int r = (shm->rank + i) % shm->world;
            choir__reduce_slice(n, size, r, shm->world, &lo, &hi);
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
    choir__place places[CHOIR__MAX_WORLD];
    for (int r = 0; r < shm->world; r++) {
        places[r] = shm->control->slots[r].places[shm->seq % 2];
        if (!places[r].shared || places[r].shared != places[0].shared)
            return NULL;
    }
    choir__shared *shared = choir__shm_shared(shm, places[0].shared);
    for (int r = 0; r < shm->world; r++)
        from[r] = (char *)choir__shared_at(shared, r) + places[r].offset;
    return shared;
}

/* My slice out of all buffers, into all buffers; my own first. */
static choir_status direct(choir__shm *shm, choir__reduction *r, int64_t count)
{
    int64_t lo, hi;
    size_t size = r->arith->size;
    r->outputs = shm->world;
    r->stream = (size_t)count * size * (size_t)shm->world > shm->cache_bytes;
    choir__reduce_slice(count, size, shm->rank, shm->world, &lo, &hi);
    choir__reduce(r, shm->scratch, lo, hi);
    count_bytes(shm, 2 * (size_t)(shm->world - 1) * (size_t)(hi - lo) * size);
    return choir__shm_barrier(shm);
}

choir_status choir__shm_all_reduce(
    choir__shm *shm, void *data, int64_t count, choir_dtype dtype, choir_reduce_op op)
{
    const choir__call call = {.kind = CHOIR__CALL_ALL_REDUCE,
        .count = (uint64_t)count,
        .dtype = (uint8_t)dtype,
        .op = (uint8_t)op};
    size_t bytes = (size_t)count * choir_dtype_size(dtype);
    if (shm->world == 1)
        return choir__shm_enter(shm, call);
    job j;
    job_init(&j, shm, data, count, &call);
    bool few = shm->world <= 3 || (size_t)(shm->world - 1) * bytes <= REPLICATE_UP_TO;
    if (bytes < DIRECT_FROM && few)
        return replicated(shm, &j, false);

    shm->me->places[(shm->seq + 1) % 2] = choir__shm_find(shm, data, bytes);
    if (choir__shm_enter(shm, call))
        return shm->failed;
    if (common_shared(shm, j.from)) {
        for (int i = 0; i < shm->world; i++)
            j.to[i] = (char *)(uintptr_t)j.from[(shm->rank + i) % shm->world];
        return direct(shm, &j.reduction, count);
    }
    return few ? replicated(shm, &j, true) : sliced(shm, &j);
}

/* --- the tree over micro-batches --- */

static uint32_t digest(const choir__tree_reduce *args)
{
    uint32_t scale;
    memcpy(&scale, &args->scale, sizeof scale);
    uint64_t h = 0, parts[] = {args->offset, args->node_stride, (uint64_t)args->leaves, scale};
    for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
        h = (h ^ parts[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
    return (uint32_t)h;
}

/* Adds rank's nodes to the list that has `count` so far. */
static int add_nodes(choir__shm *shm, const choir__tree_reduce *args, int rank, int count)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    choir__tree_run(args->leaves, rank, shm->world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, nodes);
    if ((size_t)(count + n) > shm->nodes_room) {
        shm->nodes_room = 2 * (size_t)(count + n);
        shm->nodes = choir__realloc(shm->nodes, shm->nodes_room * sizeof *shm->nodes);
        shm->sources = choir__realloc(shm->sources, shm->nodes_room * sizeof *shm->sources);
    }
    const char *region = choir__shared_at(args->shared, rank);
    for (int k = 0; k < n; k++) {
        shm->nodes[count + k] = nodes[k];
        shm->sources[count + k] = region + args->offset + (size_t)k * args->node_stride;
    }
    return n;
}

/* Its nodes, and its place for the result, must lie inside the rank's region. */
static bool fits(const choir__tree_reduce *args, int rank, int nodes)
{
    size_t last = args->offset + (size_t)(nodes ? nodes - 1 : 0) * args->node_stride;
    size_t room = choir__shared_bytes(args->shared, rank), bytes = (size_t)args->count * 4;
    return args->offset <= room && last <= room && bytes <= room - last;
}

choir_status choir__shm_tree_reduce(choir__shm *shm, const choir__tree_reduce *args)
{
    const choir__call call = {.kind = CHOIR__CALL_TREE_REDUCE,
        .count = (uint64_t)args->count,
        .root = (int32_t)args->leaves,
        .layout = digest(args)};
    int count = 0;
    char *to[CHOIR__MAX_WORLD];
    if (choir__shm_enter(shm, call))
        return shm->failed;
    if (args->count == 0)
        return CHOIR_OK;
    for (int r = 0; r < shm->world; r++) {
        int n = add_nodes(shm, args, r, count);
        if (!fits(args, r, n))
            return choir__shm_fail(shm, CHOIR_ERR_ARGUMENT,
                "tree_reduce: %d nodes of %lld f32 at %zu, %zu bytes apart, do not fit rank "
                "%d's %zu bytes",
                n, (long long)args->count, args->offset, args->node_stride, r,
                choir__shared_bytes(args->shared, r));
        count += n;
    }
    for (int i = 0; i < shm->world; i++) {
        int r = (shm->rank + i) % shm->world;
        to[i] = (char *)choir__shared_at(args->shared, r) + args->offset;
    }
    choir__reduction reduction = {.arith = choir__arith_find(CHOIR_F32, CHOIR_SUM),
        .nodes = shm->nodes,
        .from = shm->sources,
        .to = to,
        .sources = count,
        .scale = (double)args->scale,
        .divisor = 1};
    return direct(shm, &reduction, args->count);
}
