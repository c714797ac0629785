/* Collectives that add: reduce, all_reduce, reduce_scatter, and the gradients' tree.
 *
 * If the peers' chunks are few and small, every rank that needs a result reads all of them and
 * adds them itself: one step per chunk. With more ranks, each adds its own slice of the chunk
 * and then fetches the results of the others: two steps, but a chunk is read once, whatever the
 * number of ranks. A reduce_scatter always takes one step, because each rank needs only its own
 * slice.
 *
 * Data in shared memory are reduced in place: each rank reads its slice from every buffer and
 * writes the sum to all buffers that need it. */
#include "comm/reduce.h"
#include "comm/shm/numa.h"
#include "comm/shm/shm.h"

#include <stdlib.h>
#include <string.h>

enum { REPLICATE_UP_TO = 64 * 1024 }; /* bytes, over all peers */

typedef struct job {
    choir__shm *shm;
    const choir__call *call;
    choir__kind kind;
    int rank, world;
    bool wants;          /* needs a result: all ranks except non-roots of a reduce */
    bool few;            /* the peers' data are small: each rank reads all of them */
    size_t size;         /* bytes of an element */
    int64_t count, each; /* elements; in a reduce_scatter the total, and per part */
    choir__node nodes[CHOIR__MAX_WORLD];
    int owners[CHOIR__MAX_WORLD];
    const char *from[CHOIR__MAX_WORLD];
    char *to[CHOIR__MAX_WORLD];
    choir__reduce_task reduction; /* reduction of one chunk */
} job;

static void job_init(job *j, choir__shm *shm, const choir__call *call)
{
    const choir__stamp *stamp = &call->stamp;
    bool mean = stamp->op == CHOIR_MEAN;
    j->shm = shm;
    j->call = call;
    j->kind = (choir__kind)stamp->kind;
    j->rank = shm->base.rank;
    j->world = shm->base.world;
    j->wants =
        j->kind != CHOIR__REDUCE || j->rank == choir__engine_rank(&j->shm->base, stamp->root);
    j->each = (int64_t)stamp->count;
    j->count = j->kind == CHOIR__REDUCE_SCATTER ? j->each * j->world : j->each;
    for (int r = 0; r < j->world; r++)
        j->nodes[r] = (choir__node){j->owners[r] = r, 1};
    j->reduction = (choir__reduce_task){
        .arith = choir__arith_find((choir_dtype)stamp->dtype, (choir_reduce_op)stamp->op),
        .nodes = j->nodes,
        .from = j->from,
        .to = j->to,
        .sources = j->world,
        .outputs = 1,
        .scale = mean ? 1.0 / j->world : 1,
        .divisor = mean ? j->world : 1};
    j->size = j->reduction.arith->size;
    j->few =
        j->world <= 3 || (size_t)(j->world - 1) * (size_t)j->count * j->size <= REPLICATE_UP_TO;
}

static void count_elements(const job *j, int64_t elements)
{
    choir__shm_count(j->shm, (size_t)elements * j->size);
}

/* --- staged --- */

static bool scatters(const job *j)
{
    return j->kind == CHOIR__REDUCE_SCATTER;
}

/* Returns the bytes that a staging area holds at a time; in a reduce_scatter, the bytes of a
 * piece of every rank's part. */
static size_t piece_bytes(const job *j)
{
    return scatters(j) ? (size_t)CHOIR__CHUNK / (size_t)j->world / 64 * 64 : CHOIR__CHUNK;
}

static int64_t total(const job *j)
{
    return scatters(j) ? j->each : j->count;
}

static int64_t chunk(const job *j, int64_t first)
{
    return choir__min(total(j) - first, (int64_t)(piece_bytes(j) / j->size));
}

static void stage(const job *j, int64_t first, uint32_t buffer)
{
    char *staging = choir__shm_staging(j->shm, j->rank, buffer);
    const char *in = (const char *)j->call->in + (size_t)first * j->size;
    size_t bytes = (size_t)chunk(j, first) * j->size, part = (size_t)j->each * j->size;
    if (!bytes || j->world == 1 || (j->kind == CHOIR__REDUCE && j->wants && j->few))
        return; /* no rank would read it */
    if (!scatters(j)) {
        memcpy(staging, in, bytes);
        return;
    }
    for (int i = 1; i < j->world; i++) {
        size_t d = (size_t)((j->rank + i) % j->world);
        memcpy(staging + d * piece_bytes(j), in + d * part, bytes);
    }
}

/* Stages elements from first on, unless they are staged already, and takes a step. */
static choir_status staging_step(
    job *j, int64_t first, choir__shm_progress progress, uint32_t *buffer)
{
    choir__shm *shm = j->shm;
    bool begins = first == 0;
    if (begins && progress == CHOIR__STAGED) {
        *buffer = (shm->turns - 1) % 2;
        return CHOIR_OK;
    }
    *buffer = shm->turns++ % 2;
    stage(j, first, *buffer);
    return choir__shm_step(shm, &j->call->stamp, begins && progress == CHOIR__FRESH);
}

/* Every rank that needs a result adds it up itself: all ranks everything, or the root, or each
 * its part of a reduce_scatter. One step per chunk. A rank's own data are read in place. */
static choir_status one_step(job *j, choir__shm_progress progress)
{
    choir__shm *shm = j->shm;
    int64_t first = 0, mine = scatters(j) ? j->rank * j->each : 0;
    size_t at = scatters(j) ? (size_t)j->rank * piece_bytes(j) : 0;
    do {
        uint32_t buffer;
        int64_t n = chunk(j, first);
        if (staging_step(j, first, progress, &buffer) != CHOIR_OK)
            return shm->base.failed;
        for (int r = 0; r < j->world; r++)
            j->from[r] = choir__shm_staging(shm, r, buffer) + at;
        j->from[j->rank] = (const char *)j->call->in + (size_t)(mine + first) * j->size;
        j->to[0] = (char *)j->call->out + (size_t)first * j->size;
        if (j->wants)
            choir__reduce(&j->reduction, shm->scratch, 0, n);
        first += n;
    } while (first < total(j));
    choir__shm_prepare(shm, (size_t)chunk(j, 0) * j->size);
    count_elements(j, j->wants ? (j->world - 1) * total(j) : total(j));
    return CHOIR_OK;
}

/* Each rank adds its slice of a chunk: two steps. The single result buffer is free again when
 * all ranks have published the first step of the next chunk. */
static choir_status two_steps(job *j, choir__shm_progress progress)
{
    choir__shm *shm = j->shm;
    int64_t fetched = 0, lo, hi;
    for (int64_t first = 0; first < j->count;) {
        uint32_t buffer;
        int64_t n = chunk(j, first);
        char *result = (char *)j->call->out + (size_t)first * j->size;
        if (staging_step(j, first, progress, &buffer) != CHOIR_OK)
            return shm->base.failed;
        for (int r = 0; r < j->world; r++)
            j->from[r] = choir__shm_staging(shm, r, buffer);
        j->to[0] = choir__shm_staging(shm, j->rank, 2);
        choir__reduce_slice(n, j->size, j->rank, j->world, &lo, &hi);
        choir__reduce(&j->reduction, shm->scratch, lo, hi);
        fetched += (j->world - 1) * (hi - lo);
        if (choir__shm_barrier(shm) != CHOIR_OK)
            return shm->base.failed;
        for (int i = 0; i < j->world && j->wants; i++) {
            int r = (j->rank + i) % j->world;
            choir__reduce_slice(n, j->size, r, j->world, &lo, &hi);
            memcpy(result + (size_t)lo * j->size,
                choir__shm_staging(shm, r, 2) + (size_t)lo * j->size,
                (size_t)(hi - lo) * j->size);
            fetched += i ? hi - lo : 0;
        }
        first += n;
    }
    count_elements(j, fetched);
    return CHOIR_OK;
}

/* --- direct --- */

/* Returns true if all ranks' data are in memory that this rank can reach, and sets from[r] to
 * their addresses. The decision uses only published details, so it is equal on all ranks; a
 * rank that has freed the memory fails. */
static bool reachable(choir__shm *shm, size_t bytes, const char *from[])
{
    int world = shm->base.world;
    for (int r = 0; r < world; r++)
        if (!choir__shm_details(shm, r)->in.shared)
            return false;
    for (int r = 0; r < world; r++) {
        from[r] = choir__shm_at(shm, choir__shm_details(shm, r)->in, bytes);
        if (!from[r])
            choir__shm_fail(shm, CHOIR_ERR_STATE,
                "rank %d uses shared memory that rank %d has freed",
                choir__engine_number(&shm->base, r),
                choir__engine_number(&shm->base, shm->base.rank));
    }
    return true;
}

/* Reduces a slice of all buffers into r->to. */
static choir_status direct(choir__shm *shm, choir__reduce_task *r, int64_t lo, int64_t hi)
{
    size_t bytes = (size_t)(hi - lo) * r->arith->size, world = (size_t)shm->base.world;
    r->stream = r->outputs > 1 && bytes * world * world > shm->cache_bytes;
    choir__reduce(r, shm->scratch, lo, hi);
    choir__shm_count(shm, (world - 1 + (size_t)r->outputs - 1) * bytes);
    return choir__shm_barrier(shm);
}

/* Reduces all elements into every rank's buffer: `to` (world) is in the order of ranks; owners
 * (sources) has the rank whose data a source is. */
static choir_status into_all(
    choir__shm *shm, choir__reduce_task *r, const int *owners, char *const to[], int64_t count)
{
    int rank = shm->base.rank, world = shm->base.world;
    int64_t lo, hi;
    char *mine_first[CHOIR__MAX_WORLD];
    r->to = to;
    r->outputs = world;
    if (choir__numa_helps(shm, r, count))
        return choir__numa_reduce(shm, r, owners, count);
    for (int i = 0; i < world; i++)
        mine_first[i] = to[(rank + i) % world];
    r->to = mine_first;
    choir__reduce_slice(count, r->arith->size, rank, world, &lo, &hi);
    return direct(shm, r, lo, hi);
}

static choir_status directly(job *j)
{
    int64_t lo, hi;
    for (int r = 0; r < j->world; r++)
        j->to[r] = (char *)(uintptr_t)j->from[r];
    switch (j->kind) {
    case CHOIR__ALL_REDUCE: return into_all(j->shm, &j->reduction, j->owners, j->to, j->count);
    case CHOIR__REDUCE:
        j->reduction.to = &j->to[choir__engine_rank(&j->shm->base, j->call->stamp.root)];
        choir__reduce_slice(j->count, j->size, j->rank, j->world, &lo, &hi);
        return direct(j->shm, &j->reduction, lo, hi);
    default:
        for (int r = 0; r < j->world; r++)
            j->from[r] += (size_t)(j->rank * j->each) * j->size;
        j->to[0] = j->call->out;
        return direct(j->shm, &j->reduction, 0, j->each);
    }
}

/* --- */

choir_status choir__shm_reduction(choir__shm *shm, const choir__call *call)
{
    job j;
    choir__shm_progress progress = CHOIR__FRESH;
    job_init(&j, shm, call);
    size_t bytes = (size_t)j.count * j.size;
    if (j.world > 1 && bytes >= CHOIR__DIRECT_FROM) {
        choir__details *mine = choir__shm_my_details(shm);
        uint32_t buffer = shm->turns++ % 2;
        mine->in = choir__shm_find(shm, call->in, bytes);
        mine->staged = !mine->in.shared;
        if (mine->staged)
            stage(&j, 0, buffer);
        if (choir__shm_enter(shm, &call->stamp) != CHOIR_OK)
            return shm->base.failed;
        if (reachable(shm, bytes, j.from))
            return shm->base.failed != CHOIR_OK ? shm->base.failed : directly(&j);
        progress = choir__shm_all_staged(shm) ? CHOIR__STAGED : CHOIR__ENTERED;
    }
    return scatters(&j) || j.few ? one_step(&j, progress) : two_steps(&j, progress);
}

/* --- the tree over micro-batches --- */

void choir__shm_add_sources(choir__shm *shm, int rank, const choir__node *nodes, int n,
    const char *at, size_t stride, int count)
{
    if ((size_t)(count + n) > shm->nodes_room) {
        shm->nodes_room = 2 * (size_t)(count + n);
        shm->nodes = choir__realloc(shm->nodes, shm->nodes_room * sizeof *shm->nodes);
        shm->sources = choir__realloc(shm->sources, shm->nodes_room * sizeof *shm->sources);
        shm->owners = choir__realloc(shm->owners, shm->nodes_room * sizeof *shm->owners);
    }
    for (int k = 0; k < n; k++) {
        shm->nodes[count + k] = nodes[k];
        shm->sources[count + k] = at + (size_t)k * stride;
        shm->owners[count + k] = rank;
    }
}

/* Appends a rank's nodes to the list, which has `count` entries so far. */
static int add_nodes(
    choir__shm *shm, const choir__call *call, int rank, const char *at, int count)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    choir__tree_run(call->stamp.leaves, rank, shm->base.world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, nodes);
    choir__shm_add_sources(shm, rank, nodes, n, at, call->node_stride, count);
    return n;
}

/* Returns true if all nodes of a rank are inside the region that contains its first one. */
static bool fits(choir__shm *shm, const choir__call *call, int rank, int nodes)
{
    size_t span = (size_t)(nodes ? nodes - 1 : 0) * call->node_stride;
    return choir__shm_at(shm, choir__shm_details(shm, rank)->in,
               span + choir__shm_bytes(&call->stamp)) != NULL;
}

choir_status choir__shm_tree_reduce(choir__shm *shm, const choir__call *call)
{
    int count = 0, world = shm->base.world;
    const char *from[CHOIR__MAX_WORLD];
    char *to[CHOIR__MAX_WORLD];
    size_t bytes = choir__shm_bytes(&call->stamp);
    choir__shm_my_details(shm)->in = choir__shm_find(shm, call->out, bytes);
    if (choir__shm_enter(shm, &call->stamp) != CHOIR_OK)
        return shm->base.failed;
    if (call->stamp.count == 0)
        return CHOIR_OK;
    if (!reachable(shm, bytes, from))
        return choir__shm_tell(shm, choir__message_run(&shm->base, call));
    for (int r = 0; r < world && shm->base.failed == CHOIR_OK; r++) {
        int n = add_nodes(shm, call, r, from[r], count);
        if (!fits(shm, call, r, n))
            choir__shm_fail(shm, CHOIR_ERR_ARGUMENT,
                "tree_reduce: %d nodes of %llu numbers, %zu bytes apart, do not fit rank %d's "
                "shared memory",
                n, (unsigned long long)call->stamp.count, call->node_stride,
                choir__engine_number(&shm->base, r));
        count += n;
    }
    if (shm->base.failed != CHOIR_OK)
        return shm->base.failed;
    for (int r = 0; r < world; r++)
        to[r] = (char *)(uintptr_t)from[r];
    choir__reduce_task reduction = {
        .arith = choir__arith_find((choir_dtype)call->stamp.dtype, CHOIR_SUM),
        .nodes = shm->nodes,
        .from = shm->sources,
        .sources = count,
        .scale = call->scale,
        .divisor = 1};
    return into_all(shm, &reduction, shm->owners, to, (int64_t)call->stamp.count);
}
