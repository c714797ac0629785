/* Do all ranks make the same call?
 *
 * Each rank writes what it calls beside its step and reads what the others wrote there: 24
 * bytes in the line that carries the flag anyway. Calls of two collectives in turn share a
 * slot's two places: who enters call n + 1 has seen all ranks enter n, so all are through with
 * n - 1. */
#include "comm/shm/shm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *choir__call_text(const choir__call *call, char text[160])
{
    static const char *ops[] = {"", " (mean)", " (min)", " (max)"};
    const size_t room = 160;
    const char *dtype = choir_dtype_name((choir_dtype)call->dtype);
    switch ((choir__call_kind)call->kind) {
    case CHOIR__CALL_BARRIER: snprintf(text, room, "barrier"); break;
    case CHOIR__CALL_BROADCAST:
        snprintf(
            text, room, "broadcast of %" PRIu64 " bytes from rank %d", call->count, call->root);
        break;
    case CHOIR__CALL_ALL_REDUCE:
        snprintf(text, room, "all_reduce of %" PRIu64 " %s%s", call->count, dtype,
            ops[call->op % CHOIR_COUNT(ops)]);
        break;
    case CHOIR__CALL_ALL_GATHER:
        snprintf(text, room, "all_gather of %" PRIu64 " bytes", call->count);
        break;
    case CHOIR__CALL_SHARED: snprintf(text, room, "the making of shared memory"); break;
    case CHOIR__CALL_TREE_REDUCE:
        snprintf(text, room,
            "tree_reduce of %" PRIu64 " f32 over %d micro-batches (layout %08x)", call->count,
            call->root, call->layout);
        break;
    default: snprintf(text, room, "call %d", call->kind); break;
    }
    return text;
}

/* Against rank 0, so that all ranks tell it in the same words. */
static choir_status mismatch(
    choir__shm *shm, int rank, const choir__call *theirs, const choir__call *zero)
{
    char there[160], here[160], numbers[64] = "";
    if (theirs->seq != zero->seq)
        snprintf(numbers, sizeof numbers, " (calls number %u and %u)", theirs->seq, zero->seq);
    return choir__shm_fail(shm, CHOIR_ERR_MISMATCH,
        "rank %d called %s while rank 0 called %s%s", rank, choir__call_text(theirs, there),
        choir__call_text(zero, here), numbers);
}

choir_status choir__shm_enter(choir__shm *shm, choir__call call)
{
    if (shm->failed)
        return shm->failed;
    if (atomic_load_explicit(&shm->control->fault.state, memory_order_relaxed) &&
        choir__shm_fault(shm))
        return shm->failed;
    call.seq = ++shm->seq;
    shm->call = call;
    shm->me->calls[call.seq % 2] = call;
    if (choir__shm_barrier(shm))
        return shm->failed;
    const choir__slot *slots = shm->control->slots;
    const choir__call *zero = &slots[0].calls[call.seq % 2];
    for (int r = 1; r < shm->world; r++) {
        const choir__call *theirs = &slots[r].calls[call.seq % 2];
        if (memcmp(theirs, zero, sizeof call) != 0)
            return mismatch(shm, r, theirs, zero);
    }
    return CHOIR_OK;
}
