/* Checks that all ranks make the same call.
 *
 * Each rank writes its call next to its step and reads the calls of the others there: 24 bytes
 * in the cache line that carries the flag anyway. Two consecutive calls use a slot's two places
 * in turn: a rank that enters call n + 1 has seen all ranks enter n, so all have finished n -
 * 1. */
#include "comm/shm/shm.h"

#include <stdio.h>
#include <string.h>

/* Compares with rank 0, so that all ranks report a mismatch in the same words. */
static choir_status mismatch(
    choir__shm *shm, int rank, const choir__stamp *theirs, const choir__stamp *zero)
{
    char there[CHOIR__STAMP_TEXT], here[CHOIR__STAMP_TEXT], numbers[64] = "";
    if (theirs->seq != zero->seq)
        snprintf(numbers, sizeof numbers, " (calls number %u and %u)", theirs->seq, zero->seq);
    return choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
        "rank %d called %s while rank %d called %s%s", choir__engine_number(&shm->base, rank),
        choir__stamp_text(theirs, there), choir__engine_number(&shm->base, 0),
        choir__stamp_text(zero, here), numbers);
}

choir_status choir__shm_enter(choir__shm *shm, const choir__stamp *call)
{
    if (shm->base.failed != CHOIR_OK)
        return shm->base.failed;
    if (atomic_load_explicit(&shm->control->fault.state, memory_order_relaxed) &&
        choir__shm_fault(shm) != CHOIR_OK)
        return shm->base.failed;
    uint32_t place = shm->stepped % 2;
    shm->call = shm->recent[call->seq % CHOIR__RECENT] = *call;
    shm->me->calls[place] = *call;
    if (choir__shm_barrier(shm) != CHOIR_OK)
        return shm->base.failed;
    const choir__shm_slot *slots = shm->control->slots;
    const choir__stamp *zero = &slots[0].calls[place];
    for (int r = 1; r < shm->base.world; r++) {
        const choir__stamp *theirs = &slots[r].calls[place];
        if (memcmp(theirs, zero, sizeof *call) != 0)
            return mismatch(shm, r, theirs, zero);
    }
    return CHOIR_OK;
}
