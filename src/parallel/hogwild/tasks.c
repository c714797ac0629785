/* A worker's exchanges with the master, as tasks of its queue: in the order of the device's
 * work, and from host memory where the device's is far. */
#include "parallel/hogwild/hogwild.h"

#include <stdatomic.h>

#include "comm/far/far.h"
#include "device/dry/dry.h"
#include "device/recording.h"

typedef struct exchange_args {
    choir__hogwild *hogwild;
    bool always; /* exchanges even if the master has not changed since the last time */
} exchange_args;

/* Copies the words between far memory and the host's copy; nothing if no word is far. */
static bool copy_far(const choir__hogwild *h, bool to_host)
{
    for (int i = 0; i < h->count && h->mirror; i++) {
        const choir__hogwild_piece *p = &h->pieces[i];
        choir_status status = to_host ? choir__far_copy(p->mine, p->far, p->bytes)
                                      : choir__far_copy(p->far, p->mine, p->bytes);
        if (status != CHOIR_OK) {
            choir__queue_fail(status, "hogwild: %s", choir__message());
            return false;
        }
    }
    return true;
}

static void exchange(const void *args)
{
    const exchange_args *a = args;
    choir__hogwild *h = a->hogwild;
    if (choir__is_dry(h->master))
        return;
    choir__hogwild_head *head = choir__hogwild_head_of(h);
    uint64_t updates = atomic_load_explicit(&head->updates, memory_order_acquire);
    bool changed = false;
    if ((!a->always && updates == h->seen) || !copy_far(h, true))
        return;
    for (int i = 0; i < h->count; i++) {
        const choir__hogwild_piece *p = &h->pieces[i];
        changed |= choir__hogwild_exchange(
            p->rule, h->master + p->offset, p->mine, h->snapshot + p->offset, p->tensor->count);
    }
    if (!copy_far(h, false))
        return;
    choir__queue *q = h->module->run->device->queue;
    choir__queue_moved_raw(q, q, h->bytes); /* read and written */
    h->seen = updates;
    /* if no other worker has written in between, this worker has seen all updates */
    if (changed &&
        atomic_fetch_add_explicit(&head->updates, 1, memory_order_release) == updates)
        h->seen++;
}

/* Queues a task after the device's work so far and before its later work. */
static void issue(choir__hogwild *h, choir__queue_task *fn, exchange_args args)
{
    choir__queue *device = h->module->run->device->queue;
    if (h->queue != device)
        choir__queue_wait_event(h->queue, choir__queue_record(device));
    choir__queue_issue(h->queue, fn, &args, sizeof args);
    if (h->queue != device)
        choir__queue_wait_event(device, choir__queue_record(h->queue));
}

void choir__hogwild_queue_exchange(choir__hogwild *h, bool always)
{
    for (int i = 0; i < h->count; i++) {
        choir__storage_claim(h->pieces[i].tensor->storage);
        h->pieces[i].tensor->storage->version++;
    }
    issue(h, exchange, (exchange_args){h, always});
}

static void take(const void *args)
{
    choir__hogwild *h = ((const exchange_args *)args)->hogwild;
    if (choir__is_dry(h->master))
        return;
    h->seen = atomic_load_explicit(&choir__hogwild_head_of(h)->updates, memory_order_acquire);
    for (int i = 0; i < h->count; i++) {
        const choir__hogwild_piece *p = &h->pieces[i];
        choir__hogwild_take(
            p->rule, h->master + p->offset, p->mine, h->snapshot + p->offset, p->tensor->count);
    }
    copy_far(h, false);
}

void choir__hogwild_queue_take(choir__hogwild *h)
{
    issue(h, take, (exchange_args){.hogwild = h});
}
