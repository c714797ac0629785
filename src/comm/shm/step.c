/* Shared by all ways to run a call: staging buffers, the details that ranks publish with a
 * step, and byte counts. */
#include "comm/shm/shm.h"

char *choir__shm_staging(const choir__shm *shm, int rank, uint32_t buffer)
{
    size_t slots = (sizeof(choir__control) + 4095) / 4096 * 4096;
    return (char *)shm->control + slots + ((size_t)rank * 3 + buffer) * CHOIR__CHUNK;
}

/* The peers were the last to read that buffer's cache lines; without a prefetch, a store would
 * wait until they give them up. */
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
