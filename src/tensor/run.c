/* Runs: the devices that a run uses, its steps, and its end.
 *
 * The step's number is stored in device memory, one word per device. It is written in queue
 * order when a step opens: kernels of a recorded step must see the number of the replay, and
 * those of a device that lags behind must see the number of their own step. */
#include <string.h>

#include "tensor/run.h"
#include "tensor/strategy.h"

static choir__run_device *device_of(const choir__run *run, const choir_device *device)
{
    choir__run_device *p = run->devices;
    while (p && p->device != device)
        p = p->next;
    return p;
}

void choir__scope_uses(choir_scope *scope, choir_device *device)
{
    choir__run *run = scope->run;
    if (device_of(run, device))
        return;
    choir__run_device **link = &run->devices;
    while (*link)
        link = &(*link)->next;
    *link = choir__arena_get(&run->base.arena, sizeof **link);
    **link = (choir__run_device){.device = device};
    atomic_fetch_add(&device->runs, 1);
}

choir_status choir__run_failure(const choir_scope *scope)
{
    choir_status status = CHOIR_OK;
    for (choir__run_device *p = scope->run->devices; p && status == CHOIR_OK; p = p->next)
        status = choir__queue_look(p->device->queue);
    return status;
}

choir_status choir__run_sync(const choir_scope *scope)
{
    for (choir__run_device *p = scope->run->devices; p; p = p->next)
        (void)!choir_device_sync(p->device);
    return choir__run_failure(scope);
}

void choir__run_join(const choir_scope *scope)
{
    const choir__run *run = scope->run;
    choir__queue *home = run->base.device->queue;
    if (!run->devices->next)
        return;
    for (choir__run_device *p = run->devices->next; p; p = p->next)
        choir__queue_wait_event(home, choir__queue_record(p->device->queue));
    choir__event all = choir__queue_record(home);
    for (choir__run_device *p = run->devices->next; p; p = p->next)
        choir__queue_wait_event(p->device->queue, all);
}

void choir__run_clear(const choir_scope *scope)
{
    choir__run_sync(scope); /* first, since a device's failure is passed to those that wait */
    for (choir__run_device *p = scope->run->devices; p; p = p->next)
        choir__queue_clear(p->device->queue);
}

static void store_word(const choir__run_device *p, uint64_t step)
{
    choir__k_store args = {.y = p->step->data, .bytes = sizeof step};
    memcpy(args.data, &step, sizeof step);
    choir__launch(p->device, CHOIR_F32, store, &args);
}

/* Writes the step's number to the memory from which kernels read it, in the order of each
 * device's queue. */
static void store_step(choir_scope *scope, uint64_t step)
{
    for (choir__run_device *p = scope->run->devices; p; p = p->next)
        if (p->step)
            store_word(p, step);
}

void choir__step_begins(choir_scope *scope, uint64_t step)
{
    store_step(scope, step);
    choir__strategies_begin(scope);
}

const uint64_t *choir__step_word(choir_scope *scope, choir_device *device)
{
    choir__scope_uses(scope, device);
    choir__run_device *p = device_of(scope->run, device);
    if (p->step)
        return p->step->data;
    if (choir__recording_active()) {
        choir__poison(scope, CHOIR_ERR_STATE,
            "a recorded step draws random numbers on %s, where the calls before it drew none",
            choir_device_name(device));
        return NULL;
    }
    p->step = choir__storage_new(device, sizeof(uint64_t));
    if (!p->step) {
        choir__poison(
            scope, CHOIR_ERR_MEMORY, "out of memory on %s", choir_device_name(device));
        return NULL;
    }
    store_word(p, scope->step);
    return p->step->data;
}
