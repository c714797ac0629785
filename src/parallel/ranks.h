/* What DDP and FSDP have in common. */
#ifndef CHOIR_RANKS_H
#define CHOIR_RANKS_H

#include "comm/group.h"
#include "nn/module.h"

/* One goes on after all that the other was given so far. */
void choir__group_waits(choir_group *group, const choir_device *device);
void choir__device_waits(const choir_device *device, choir_group *group);

/* Ranks that compute alike, and hold the same parameters and buffers. Collective. Errors:
 * mismatch, in the strategy's name; the group's. */
choir_status choir__ranks_agree(choir_group *group, choir_module *module, const char *strategy);

/* Adds up numbers (count) of all ranks of the group, in the order of the device's queue: a
 * strategy's sum. */
choir_status choir__ranks_sum(
    choir_group *group, choir_device *device, double *numbers, int64_t count);

/* A reducer's gather_rows and unused. */
choir_status choir__ranks_gather_rows(choir_group *group, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all);
/* The same where leaves differ in rows: counts of all leaves of the job. */
choir_status choir__ranks_gather_counted(choir_group *group, choir__book *book,
    choir__slot *slot, int64_t row_bytes, const int64_t *counts, choir__leaf_rows *all);
/* How many parameters had no use in this backward; names the first of them. */
int choir__ranks_list_unused(const choir__book *book, char *names, size_t bytes);
choir_status choir__ranks_name_unused(choir__book *book, const char *strategy);

/* Buffers are rank 0's before each forward. They change once a step (on micro-batch 0), so the
 * first forward of a step, *synced - 1, brings them all. */
void choir__ranks_sync_buffers(
    choir_group *group, choir_module *module, const choir_scope *scope, uint64_t *synced);

/* The module's buffers become rank 0's, in flat blocks (buffers.c). Queued. */
choir_status choir__ranks_broadcast_buffers(choir_group *group, choir_module *module);
/* All that the module has becomes rank root's, parameters too. Waits. */
choir_status choir__ranks_broadcast_model(choir_group *group, choir_module *module, int root);

#endif
