/* Memory of a device's that a group's calls work on, such as gradients. Where the device
 * computes in the host's memory and the group's engine can share that, peers read it where it
 * lies (choir__shared_new); elsewhere it is a block of the device's pool. Either way it counts
 * among the device's bytes. */
#ifndef CHOIR_GROUP_MEMORY_H
#define CHOIR_GROUP_MEMORY_H

#include "comm/group.h"
#include "tensor/tensor.h"

typedef struct choir__group_memory {
    void *at; /* NULL: there is none */
    choir_group *group;
    choir_device *device;
    choir__shared *shared; /* one of the two */
    choir__storage *storage;
    size_t charged; /* bytes of shared, to the device's pool */
} choir__group_memory;

/* Whether ranks with such devices reach each other's memory in this group. */
bool choir__ranks_share(const choir_group *group, const choir_device *device);

/* Zeros. Collective. what: "gradients", advice: "; fsdp shards them", for a message. A rank
 * that has no memory aborts the group, so that the others do not wait for it. */
choir_status choir__group_memory_new(choir__group_memory *m, choir_group *group,
    choir_device *device, size_t bytes, const char *what, const char *advice);
/* Waits for the group first; leaves *m empty. */
void choir__group_memory_free(choir__group_memory *m);

#endif
