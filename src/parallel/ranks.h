/* Functions that DDP, FSDP and other strategies over ranks share. */
#ifndef CHOIR_RANKS_H
#define CHOIR_RANKS_H

#include "comm/group.h"
#include "nn/module.h"

/* choir__group_waits: the group's queue waits for all work that the device has been given so
 * far. choir__device_waits: the device waits for all work of the group so far. */
void choir__group_waits(choir_group *group, const choir_device *device);
void choir__device_waits(const choir_device *device, choir_group *group);

/* Begins a strategy's constructor: run and module become ones that can be used. Returns false,
 * with the error in the scope, if the group is missing. */
bool choir__ranks_begin(
    choir_scope **run, choir_module **module, const choir_group *group, const char *function);

/* Checks that the ranks compute alike and hold the same parameters and buffers. Collective.
 * Errors: mismatch, in the strategy's name; the group's. */
choir_status choir__ranks_agree(choir_group *group, choir_module *module, const char *strategy);

/* A strategy's sum: adds up the numbers (count) of all ranks of the group, in the order of the
 * device's queue. */
choir_status choir__ranks_sum(
    choir_group *group, choir_device *device, double *numbers, int64_t count);

/* A strategy's gather: returns the numbers of all ranks (total). This rank has micro-batches
 * [first, first + planned). */
choir_tensor *choir__ranks_gather_numbers(
    choir_group *group, choir_tensor *numbers, int64_t first, int64_t planned, int64_t total);

/* A reducer's gather_rows for leaves that all have equally many rows. */
choir_status choir__ranks_gather_rows(choir_group *group, choir__book *book, choir__slot *slot,
    int64_t row_bytes, bool aside, choir__leaf_rows *all);
/* Like choir__ranks_gather_rows, for leaves with different numbers of rows: `counts` has one
 * entry per leaf of the job. With `aside` the leaves have other memory than without, so that a
 * fault of memory is not in two computations. */
choir_status choir__ranks_gather_counted(choir_group *group, choir__book *book,
    choir__slot *slot, int64_t row_bytes, const int64_t *counts, bool aside,
    choir__leaf_rows *all);
/* choir__ranks_list_unused returns the number of parameters without a use in this backward,
 * and lists the first names. choir__ranks_name_unused, a reducer's `unused`, makes that an
 * error. */
int choir__ranks_list_unused(const choir__book *book, char *names, size_t bytes);
choir_status choir__ranks_name_unused(choir__book *book, const char *strategy);

/* Broadcasts rank 0's buffers before the first forward of each step. Buffers change once per
 * step, on micro-batch 0. *synced is one more than the last step whose buffers were
 * broadcast. */
void choir__ranks_sync_buffers(
    choir_group *group, choir_module *module, const choir_scope *scope, uint64_t *synced);

/* A copy of a module's buffers, and of the number of the step in which it was made. The copy is
 * queued, and may be recorded. Undoing copies the buffers back if the copy was made in `step`;
 * it waits for the devices. Error: memory. */
typedef struct choir__kept_buffers choir__kept_buffers;
choir_status choir__ranks_make_kept(choir_module *module, choir__kept_buffers **kept);
void choir__ranks_keep_buffers(choir__kept_buffers *kept);
void choir__ranks_undo_buffers(choir__kept_buffers *kept, uint64_t step);
void choir__ranks_free_kept(choir__kept_buffers *kept); /* NULL is fine */

/* Copies rank 0's buffers of the module to all ranks, in flat blocks (buffers.c). Queued. */
choir_status choir__ranks_broadcast_buffers(choir_group *group, choir_module *module);
/* Gives all ranks rank 0's parameters and buffers. Parameters that no rank has drawn yet stay
 * so if all have one seed, and get memory where a strategy around this one puts them. */
choir_status choir__ranks_share_model(choir_group *group, choir_module *module);
/* Copies all parameters and buffers of rank `root` to all ranks. Waits. */
choir_status choir__ranks_broadcast_model(choir_group *group, choir_module *module, int root);

#endif
