/* Storage: device memory with a count of the tensors that use it. */
#include <stdatomic.h>
#include <stdlib.h>

#include "device/recording.h"
#include "tensor/tensor.h"

static _Atomic uint64_t moment = 1;

uint64_t choir__storage_now(void)
{
    return atomic_fetch_add(&moment, 1) + 1;
}

choir__storage *choir__storage_new(choir_device *device, size_t bytes)
{
    choir__pool_block *block = choir__block_new(device, bytes);
    if (!block)
        return NULL;
    choir__storage *s = choir__storage_wrap(device, choir__block_data(block), bytes);
    s->block = block;
    return s;
}

choir__storage *choir__storage_wrap(choir_device *device, void *data, size_t bytes)
{
    choir__storage *s = choir__alloc(sizeof *s);
    *s = (choir__storage){.refs = 1,
        .device = device,
        .data = data,
        .bytes = bytes,
        .begun = atomic_load(&moment)};
    return s;
}

choir__storage *choir__storage_outside(
    choir_device *device, struct choir__offload_store *outside, void *data, size_t bytes)
{
    choir__storage *s = choir__storage_wrap(device, data, bytes);
    s->outside = outside;
    return s;
}

choir__storage *choir__storage_ref(choir__storage *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

void choir__storage_holds(choir__storage *storage, choir__memory_kind kind)
{
    if (storage && storage->block && choir__block_kind(storage->block) != kind)
        choir__block_holds(storage->block, kind);
}

void choir__storage_tell(choir__storage *storage, choir__memory_use use, const char *name)
{
    if (storage && storage->block)
        choir__block_tell(storage->block, use, name);
}

void choir__storage_holds_as(choir__storage *storage, const choir__storage *other)
{
    if (other && other->block)
        choir__storage_holds(storage, choir__block_kind(other->block));
}

bool choir__storage_is_ours(const choir__storage *storage)
{
    return storage->refs == 1 && !storage->mapping && !storage->shared &&
           !(storage->block && choir__block_read_elsewhere(storage->block));
}

void choir__storage_claim(choir__storage *storage)
{
    if (storage->block && choir__block_read_elsewhere(storage->block))
        choir__block_wait_readers(storage->block, storage->device->queue);
    storage->begun = atomic_load(&moment);
}

choir__storage *choir__storage_mapped(
    choir_device *device, choir__mapping *mapping, size_t offset, size_t bytes)
{
    choir__storage *s = choir__storage_wrap(device, mapping->at + offset, bytes);
    s->mapping = choir__mapping_ref(mapping);
    return s;
}

static void unmap(const void *args);

void choir__storage_read_by(choir__storage *storage, choir__queue *queue)
{
    if (storage->block)
        choir__block_used_by(storage->block, choir__queue_record(queue));
    if (storage->holder) /* which may give the memory to other values */
        choir__queue_wait_event(storage->device->queue, choir__queue_record(queue));
    if (storage->mapping && storage->mapping->drop) {
        choir__queue_wait_event_raw(storage->device->queue, choir__queue_record(queue));
    } else if (storage->mapping) {
        choir__mapping *held = choir__mapping_ref(storage->mapping);
        choir__queue_issue_raw(queue, unmap, &held, sizeof held);
    }
}

static void unmap(const void *args)
{
    choir__mapping_unref(*(choir__mapping *const *)args);
}

/* Releases the mapping after the device's pending work, outside any recording. A failed queue
 * drops its tasks, so nothing is read any more. Tasks of a GPU's queue run before the GPU does
 * the work that they issue, so for the GPU's own memory (`drop`) this waits. */
static void let_go(choir_device *device, choir__mapping *mapping)
{
    if (mapping->drop)
        choir__queue_wait(device->queue);
    if (mapping->drop || choir__queue_status(device->queue) != CHOIR_OK)
        choir__mapping_unref(mapping);
    else
        choir__queue_issue_raw(device->queue, unmap, &mapping, sizeof mapping);
}

void choir__storage_unref(choir__storage *storage)
{
    if (!storage || atomic_fetch_sub(&storage->refs, 1) > 1)
        return;
    choir__block_free(storage->block);
    if (storage->mapping)
        let_go(storage->device, storage->mapping);
    free(storage);
}
