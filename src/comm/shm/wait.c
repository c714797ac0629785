/* Steps: publishing one, waiting for the peers', and what happens when one never comes.
 *
 * A waiter looks at the flag for a moment with the core held, then gives its core away between
 * looks, then sleeps on the flag. `sleepers` tells the publisher whether a wake-up call is
 * needed; both sides use sequentially consistent accesses, so either the publisher sees the
 * sleeper or the sleeper sees the step. A sleeper wakes every 50 ms to ask after the ranks it
 * waits for: a pidfd a peer becomes readable when that process is gone, however it went. The
 * rank that finds out first writes the sentence into the control segment, so that all ranks
 * name the same culprit even when others, having given up, are gone by then. */
#include "comm/shm/shm.h"
#include "comm/recorder.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const struct timespec nap = {.tv_nsec = 50 * 1000 * 1000};
static const double LONGEST_NAP = 1; /* s: on a machine that is very busy */

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool reached(const choir__slot *slot, uint32_t step, memory_order order)
{
    return (int32_t)(atomic_load_explicit(&slot->step, order) - step) >= 0; /* it may wrap */
}

void choir__shm_publish(choir__shm *shm)
{
    choir__slot *me = shm->me;
    atomic_store(&me->step, ++shm->step);
    if (atomic_load(&me->sleepers))
        syscall(SYS_futex, &me->step, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* --- failures --- */

/* Adopts the sentence of the rank that failed first. */
choir_status choir__shm_fault(choir__shm *shm)
{
    choir__fault *fault = &shm->control->fault;
    if (!shm->base.failed && atomic_load_explicit(&fault->state, memory_order_acquire) == 2) {
        shm->base.failed = (choir_status)fault->status;
        snprintf(shm->base.message, sizeof shm->base.message, "%s", fault->text);
    }
    return shm->base.failed;
}

choir_status choir__shm_fail(choir__shm *shm, choir_status status, const char *format, ...)
{
    if (choir__shm_fault(shm))
        return shm->base.failed;
    va_list args;
    va_start(args, format);
    vsnprintf(shm->base.message, sizeof shm->base.message, format, args);
    va_end(args);
    shm->base.failed = status;

    choir__fault *fault = &shm->control->fault;
    int32_t none = 0;
    if (atomic_compare_exchange_strong(&fault->state, &none, 1)) {
        fault->status = status;
        snprintf(fault->text, sizeof fault->text, "%.495s", shm->base.message);
        atomic_store(&fault->state, 2);
    }
    return status;
}

bool choir__shm_dead(const choir__shm *shm, int rank)
{
    struct pollfd process = {.fd = shm->pidfds[rank], .events = POLLIN};
    return process.fd >= 0 && poll(&process, 1, 0) == 1;
}

/* The newest call that a rank has come to; NULL: none. */
static const choir__stamp *last_call(const choir__slot *slot)
{
    const choir__stamp *even = &slot->calls[0], *odd = &slot->calls[1];
    const choir__stamp *newest = (int32_t)(odd->seq - even->seq) > 0 ? odd : even;
    return newest->seq ? newest : NULL;
}

static bool came(const choir__shm *shm, int rank)
{
    const choir__stamp *last = last_call(&shm->control->slots[rank]);
    return last && last->seq == shm->call.seq;
}

static choir_status timed_out(choir__shm *shm)
{
    char text[CHOIR__SILENT_TEXT];
    int silent[CHOIR__MAX_WORLD], count = 0;
    bool all_came = true;
    for (int r = 0; r < shm->base.world; r++)
        if (!reached(&shm->control->slots[r], shm->step, memory_order_acquire)) {
            all_came = all_came && came(shm, r);
            silent[count++] = r;
        }
    if (!count) /* it came at the last moment */
        return CHOIR_OK;
    return choir__shm_fail(shm, CHOIR_ERR_TIMEOUT, "%s",
        choir__engine_silent(&shm->base, silent, count, all_came, shm->pids, &shm->call, text));
}

static choir_status died(choir__shm *shm, int rank, const char *during)
{
    char before[CHOIR__CALL_TEXT + 32] = "it had made no call yet", what[CHOIR__CALL_TEXT];
    const choir__stamp *last = last_call(&shm->control->slots[rank]);
    if (last && last->seq == shm->call.seq)
        snprintf(before, sizeof before, "it had come to that");
    else if (last)
        snprintf(before, sizeof before, "its last call was %s", choir__call_text(last, what));
    return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST, "rank %d (pid %d) died during %s; %s",
        rank, shm->pids[rank], during, before);
}

/* Called by a waiter that has slept for so long: is there still hope? */
static choir_status ask_after_peers(choir__shm *shm, double waited)
{
    char during[CHOIR__CALL_TEXT];
    if (choir__shm_fault(shm))
        return shm->base.failed;
    choir__call_text(&shm->call, during);
    for (int r = 0; r < shm->base.world; r++) {
        choir__slot *slot = &shm->control->slots[r];
        if (reached(slot, shm->step, memory_order_acquire))
            continue;
        bool left = atomic_load(&slot->left), dead = !left && choir__shm_dead(shm, r);
        /* Its last step may have come between the two looks; left too. */
        if ((!left && !dead) || reached(slot, shm->step, memory_order_acquire))
            continue;
        if (left || atomic_load(&slot->left))
            return choir__shm_fail(shm, CHOIR_ERR_PEER_LOST,
                "rank %d (pid %d) has left the group, and %s needs it", r, shm->pids[r],
                during);
        return died(shm, r, during);
    }
    return waited > shm->base.timeout_s ? timed_out(shm) : CHOIR_OK;
}

/* --- waiting --- */

static void sleep_on(choir__slot *slot, uint32_t step)
{
    atomic_fetch_add(&slot->sleepers, 1);
    uint32_t now = atomic_load(&slot->step);
    if ((int32_t)(now - step) < 0)
        syscall(SYS_futex, &slot->step, FUTEX_WAIT, now, &nap, NULL, 0);
    atomic_fetch_sub(&slot->sleepers, 1);
}

static choir_status wait_long(choir__shm *shm, choir__slot *slot)
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
            continue; /* woken by a step, though not yet the one */
        /* Time in which this process was stopped, perhaps with all others, does not count. */
        waited += now - asked < LONGEST_NAP ? now - asked : LONGEST_NAP;
        asked = now;
        if (ask_after_peers(shm, waited))
            return shm->base.failed;
    }
    return CHOIR_OK;
}

choir_status choir__shm_wait(choir__shm *shm)
{
    for (int i = 1; i < shm->base.world; i++) {
        choir__slot *slot = &shm->control->slots[(shm->base.rank + i) % shm->base.world];
        int spins = shm->spins;
        while (!reached(slot, shm->step, memory_order_acquire)) {
            relax();
            if (--spins < 0) {
                if (wait_long(shm, slot))
                    return shm->base.failed;
                break;
            }
        }
    }
    return CHOIR_OK;
}

choir_status choir__shm_barrier(choir__shm *shm)
{
    choir__shm_publish(shm);
    return choir__shm_wait(shm);
}
