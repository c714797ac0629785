/* Storage: device memory with a count of the tensors that look at it. */
#include <stdatomic.h>
#include <stdlib.h>

#include "tensor/tensor.h"

choir__storage *choir__storage_new(choir_device *device, size_t bytes)
{
    choir__block *block = choir__block_new(device, bytes);
    if (!block)
        return NULL;
    choir__storage *s = choir__storage_wrap(device, choir__block_data(block), bytes);
    s->block = block;
    return s;
}

choir__storage *choir__storage_wrap(choir_device *device, void *data, size_t bytes)
{
    choir__storage *s = choir__alloc(sizeof *s);
    *s = (choir__storage){.refs = 1, .device = device, .data = data, .bytes = bytes};
    return s;
}

choir__storage *choir__storage_ref(choir__storage *storage)
{
    atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}

bool choir__storage_is_ours(const choir__storage *storage)
{
    return storage->refs == 1 &&
           !(storage->block && choir__block_read_elsewhere(storage->block));
}

void choir__storage_claim(choir__storage *storage)
{
    if (storage->block && choir__block_read_elsewhere(storage->block))
        choir__block_wait_readers(storage->block, storage->device->queue);
}

void choir__storage_unref(choir__storage *storage)
{
    if (!storage || atomic_fetch_sub(&storage->refs, 1) > 1)
        return;
    choir__block_free(storage->block);
    free(storage);
}
