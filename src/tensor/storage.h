/* Storage: memory that tensors share, counted by reference.
 *
 * A storage belongs to one device and is released in the order of that device's queue, so work
 * that was issued before the last reference was dropped still finds its memory. */
#ifndef CHOIR_STORAGE_INTERNAL_H
#define CHOIR_STORAGE_INTERNAL_H

#include "base/files/mapping.h"
#include "device/device.h"

typedef struct choir__storage {
    _Atomic int refs;
    uint32_t version; /* counts changes in place */
    choir_device *device;
    choir__pool_block *block; /* NULL: another owner keeps the memory alive */
    /* the memory's mapping, if other processes can map it; else NULL */
    choir__mapping *mapping;
    /* place outside the device's pool (device/offload_store.h), where state of the values goes,
     * too; NULL: in the pool */
    struct choir__offload_store *outside;
    bool shared; /* tensor queues pass the block itself to other processes */
    void *data;
    size_t bytes;
    /* If set, the values may be elsewhere: choir__data asks this strategy to fetch them. */
    struct choir__strategy *holder;
    void *held; /* the strategy's handle of the values */
    /* If set, readers on other devices wait for this event alone. */
    choir__event ready;
    /* choir__storage_now() when the values were begun: at the storage's making or last claim */
    uint64_t begun;
} choir__storage;

/* Returns a number, and every storage that is made or claimed from now on has at least that
 * number in `begun`: the values of all others precede events that are recorded from now on. */
uint64_t choir__storage_now(void);

/* Returns NULL when the device is out of memory. */
choir__storage *choir__storage_new(choir_device *device, size_t bytes);
/* Wraps memory that the caller keeps alive for longer than the storage. */
choir__storage *choir__storage_wrap(choir_device *device, void *data, size_t bytes);
/* Like choir__storage_wrap, for memory outside the device's pool. */
choir__storage *choir__storage_outside(
    choir_device *device, struct choir__offload_store *outside, void *data, size_t bytes);
/* Wraps a part of shared memory and takes a reference to the mapping, which is released in
 * queue order. */
choir__storage *choir__storage_mapped(
    choir_device *device, choir__mapping *mapping, size_t offset, size_t bytes);
choir__storage *choir__storage_ref(choir__storage *storage);
void choir__storage_unref(choir__storage *storage);
/* Sets the kind of the data, for figures of memory. NULL is fine. */
void choir__storage_holds(choir__storage *storage, choir__memory_kind kind);
/* See choir__block_tell. NULL is fine. */
void choir__storage_tell(choir__storage *storage, choir__memory_use use, const char *name);
/* Gives the storage the kind of another one, which may be NULL. */
void choir__storage_holds_as(choir__storage *storage, const choir__storage *other);
/* True if only one tensor holds the storage and no other device's queue or process reads it:
 * its values may be overwritten. */
bool choir__storage_is_ours(const choir__storage *storage);
/* Makes the device wait until other queues have read the present values; call it before the
 * device overwrites them. */
void choir__storage_claim(choir__storage *storage);
/* Notes that work issued to `queue` so far reads the storage: its memory is not given to
 * another tensor before that work has run. */
void choir__storage_read_by(choir__storage *storage, choir__queue *queue);

#endif
