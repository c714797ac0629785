/* Steps: publishing one, and waiting for the peers'.
 *
 * A waiter first polls the flag while it keeps its core, then yields its core between polls,
 * then sleeps on the flag. `sleepers` tells the publisher whether a wake-up call is needed;
 * both sides use sequentially consistent accesses, so either the publisher sees the sleeper or
 * the sleeper sees the step. A sleeper wakes every 50 ms to check the ranks that it waits for
 * (failures.c). */
#include "comm/shm/shm.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/futex.h"

static const struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};

static bool reached(const choir__shm_slot *slot, uint32_t step, memory_order order)
{
    return (int32_t)(atomic_load_explicit(&slot->step, order) - step) >= 0; /* may wrap */
}

static void publish(choir__shm *shm)
{
    choir__shm_slot *me = shm->me;
    atomic_store(&me->step, ++shm->step);
    if (atomic_load(&me->sleepers))
        syscall(SYS_futex, &me->step, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool arrived(const choir__shm *shm, int rank)
{
    return reached(&shm->control->slots[rank], shm->step, memory_order_acquire);
}

/* Checks the peers on behalf of a waiter that has slept for a while. Ranks that died without
 * leaving are named first: others may have left because of them. */
static choir_status ask_after_peers(choir__shm *shm, double waited)
{
    int silent[CHOIR__MAX_WORLD], count = 0, culprit = -1;
    if (choir__shm_fault(shm) != CHOIR_OK ||
        (shm->call.seq <= 1 && choir__shm_last_words(shm) != CHOIR_OK))
        return shm->base.failed;
    for (int r = 0; r < shm->base.world; r++) {
        if (arrived(shm, r))
            continue;
        bool gone = choir__shm_gone(shm, r);
        if (arrived(shm, r)) /* the last step arrived between the two checks */
            continue;
        if (gone)
            culprit = choir__shm_culprit(shm, culprit, r);
        else
            silent[count++] = r;
    }
    if (culprit >= 0)
        return choir__shm_lost(shm, culprit);
    for (int i = 0; i < count; i++)
        if (choir__shm_compare(shm, silent[i]) != CHOIR_OK)
            return shm->base.failed;
    return waited > shm->base.timeout_s && count ? choir__shm_late(shm, silent, count)
                                                 : CHOIR_OK;
}

/* --- waiting --- */

static void sleep_on(choir__shm_slot *slot, uint32_t step)
{
    atomic_fetch_add(&slot->sleepers, 1);
    uint32_t now = atomic_load(&slot->step);
    if ((int32_t)(now - step) < 0)
        syscall(SYS_futex, &slot->step, FUTEX_WAIT, now, &nap, NULL, 0);
    atomic_fetch_sub(&slot->sleepers, 1);
}

static choir_status wait_long(choir__shm *shm, choir__shm_slot *slot)
{
    for (int i = 0; i < shm->yields; i++) {
        sched_yield();
        if (reached(slot, shm->step, memory_order_acquire))
            return CHOIR_OK;
    }
    double asked = choir__now(), waited = 0;
    while (!reached(slot, shm->step, memory_order_acquire)) {
        sleep_on(slot, shm->step);
        double now = choir__now();
        if (now - asked < 0.04)
            continue; /* woken by a step, but not the expected one */
        waited += choir__shm_slept(now - asked);
        asked = now;
        if (ask_after_peers(shm, waited) != CHOIR_OK)
            return shm->base.failed;
    }
    return CHOIR_OK;
}

static choir_status wait_for_all(choir__shm *shm)
{
    for (int i = 1; i < shm->base.world; i++) {
        choir__shm_slot *slot = &shm->control->slots[(shm->base.rank + i) % shm->base.world];
        int spins = shm->spins;
        while (!reached(slot, shm->step, memory_order_acquire)) {
            choir__pause();
            if (--spins < 0) {
                if (wait_long(shm, slot) != CHOIR_OK)
                    return shm->base.failed;
                break;
            }
        }
    }
    return CHOIR_OK;
}

choir_status choir__shm_barrier(choir__shm *shm)
{
    publish(shm);
    return wait_for_all(shm);
}
