/* Memory of a device for gradients that collectives of a group work on. If the device
 * computes in host memory and the group's engine can share that, peers read it in place
 * (choir__shared_new); otherwise it is a block of the device's pool. Either way it counts among
 * the device's bytes. */
#ifndef CHOIR_GROUP_MEMORY_H
#define CHOIR_GROUP_MEMORY_H

#include "comm/group.h"
#include "device/offload_store.h"
#include "tensor/tensor.h"

typedef struct choir__group_memory {
    void *at; /* NULL: not allocated */
    choir_group *group;
    choir_device *device;
    choir__shared *shared; /* either shared or storage is set */
    choir__storage *storage;
    size_t charged;     /* bytes of shared that are charged to the device's pool */
    const char *holder; /* name of the charge */
    choir__offload_store
        *outside; /* off-loaded: `at` is a piece of this place; NULL: in the pool */
} choir__group_memory;

/* Words about the memory. */
typedef struct choir__group_memory_words {
    const char *what;   /* an error names it: "gradients" */
    const char *advice; /* the end of an error: "; fsdp shards them" */
    const char *holder; /* the name in a dry device's ledger, in brackets; a literal */
} choir__group_memory_words;

/* Returns true if ranks with such devices can read each other's memory in this group. */
bool choir__ranks_share(const choir_group *group, const choir_device *device);

/* Allocates memory filled with zeros. Collective. A rank that is out of memory aborts the
 * group, so that the others do not wait for it. */
choir_status choir__group_memory_new(choir__group_memory *m, choir_group *group,
    choir_device *device, size_t bytes, choir__group_memory_words words);
/* Waits for the device, which may be using the old memory, and replaces that by new memory. */
choir_status choir__group_memory_renew(choir__group_memory *m, choir_group *group,
    choir_device *device, size_t bytes, choir__group_memory_words words);
/* Allocates memory outside the device's pool, filled with zeros, which peers cannot read: it
 * travels in messages. Not collective: without memory, the caller aborts the group. */
choir_status choir__group_memory_outside(choir__group_memory *m, choir_group *group,
    choir_device *device, choir__offload_store *outside, size_t bytes, const char *what);
/* Waits for the group, releases the memory and leaves *m empty. */
void choir__group_memory_free(choir__group_memory *m);

#endif
