/* The collectives of one machine: which way a call takes.
 *
 * There are three. *In one step*: each rank stages its data, publishes, waits for the others,
 * and takes what it needs out of their staging areas; small calls are done in that single step.
 * *Staged*: the same chunk after chunk, for private memory of any size. *Direct*: the data lie
 * in memory that all ranks map (choir__shared), and are read and written where they lie, once.
 * Where data lie is told in the first step; who knows by its own that they go the staged way
 * stages its first chunk before it.
 *
 * moves.c copies, reductions.c adds. All ways add in the same tree over rank numbers, so the
 * bits do not tell which one was taken. */
#include "comm/shm/shm.h"

char *choir__shm_staging(const choir__shm *shm, int rank, uint32_t buffer)
{
    size_t slots = (sizeof(choir__control) + 4095) / 4096 * 4096;
    return (char *)shm->control + slots + ((size_t)rank * 3 + buffer) * CHOIR__CHUNK;
}

/* The peers have read that buffer's lines last; a store would wait until they let go of them.
 */
void choir__shm_prepare(choir__shm *shm, size_t bytes)
{
#if defined(__x86_64__)
    char *next = choir__shm_staging(shm, shm->base.rank, shm->turns % 2);
    for (size_t at = 0; at < bytes && at < 4096; at += 64)
        __asm__ volatile("prefetchw %0" : : "m"(next[at]));
#else
    (void)shm, (void)bytes;
#endif
}

choir_status choir__shm_step(choir__shm *shm, const choir__stamp *call, bool first)
{
    return first ? choir__shm_enter(shm, call) : choir__shm_barrier(shm);
}

void choir__shm_count(choir__shm *shm, size_t bytes)
{
    atomic_fetch_add_explicit(&shm->base.bytes, bytes, memory_order_relaxed);
}

size_t choir__shm_bytes(const choir__stamp *call)
{
    return (size_t)call->count * choir_dtype_size((choir_dtype)call->dtype);
}

const choir__details *choir__shm_details(const choir__shm *shm, int rank)
{
    return &shm->control->slots[rank].details[shm->stepped % 2];
}

choir__details *choir__shm_my_details(choir__shm *shm)
{
    return &shm->me->details[shm->stepped % 2];
}

bool choir__shm_all_staged(const choir__shm *shm)
{
    int r = 0;
    while (r < shm->base.world && choir__shm_details(shm, r)->staged)
        r++;
    return r == shm->base.world;
}

choir_status choir__shm_run(choir__engine *engine, const choir__call *call)
{
    choir__shm *shm = (choir__shm *)engine;
    switch ((choir__algorithm)call->stamp.algorithm) {
    case CHOIR__AUTO:
    case CHOIR__DIRECT:
    case CHOIR__NATIVE: break;
    default: return choir__shm_by_messages(engine, call);
    }
    shm->stepped++;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__BROADCAST:
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER:
    case CHOIR__SCATTER:
    case CHOIR__ALL_TO_ALL: return choir__shm_move(shm, call);
    case CHOIR__REDUCE:
    case CHOIR__ALL_REDUCE:
    case CHOIR__REDUCE_SCATTER: return choir__shm_reduction(shm, call);
    case CHOIR__TREE_REDUCE: return choir__shm_tree_reduce(shm, call);
    case CHOIR__TREE_SCATTER: return choir__shm_tree_scatter(shm, call);
    case CHOIR__GATHER_ROWS: return choir__shm_gather_rows(shm, call);
    default: return choir__shm_enter(shm, &call->stamp); /* barrier */
    }
}
