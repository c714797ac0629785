/* Inside SyncBatchNorm: groups of micro-batches that share statistics. */
#ifndef CHOIR_PARALLEL_SYNC_BATCH_NORM_H
#define CHOIR_PARALLEL_SYNC_BATCH_NORM_H

#include <choir/sync_batch_norm.h>

#include "comm/group.h"
#include "nn/module.h"

typedef struct choir__lockstep choir__lockstep;

/* One group of micro-batches, where ranks have unequal numbers of them. */
typedef struct choir__synced_share {
    choir_group *ranks; /* in order, all that have some of them; NULL: this rank has none */
    int64_t each, most; /* micro-batches of the group, and the most of them on a rank */
} choir__synced_share;

/* A module whose batch norms share statistics. Micro-batches with equal numbers modulo `groups`
 * form a group. A rank has `together` of them, which it runs together. */
typedef struct choir__synced {
    choir__strategy strategy; /* only for batch norms: not in the run's list */
    choir__strategy listed;   /* in that list */
    choir_scope *run;
    choir_group *group; /* only for these sums: the ranks that share a group of micro-batches */
    int64_t groups;
    int together;
    int64_t total; /* micro-batches of the job */
    /* (groups), if ranks have different numbers of micro-batches; else NULL */
    choir__synced_share *shares;
    choir_group *world;   /* all ranks, if shares are used */
    choir__lockstep *now; /* the step that runs, or NULL */
    /* From inside a norm of that step: waits until all others of its group on this rank have
     * come to the norm, and replaces sums (count) by the sums over the group. */
    choir_status (*wait)(struct choir__synced *synced, double *sums, int64_t count);
} choir__synced;

/* Returns whether each of `world` ranks has as many of the `total` micro-batches as the others,
 * and as many of each of its groups. */
bool choir__synced_evenly(int64_t total, int64_t groups, int world);

/* Returns how many micro-batches of a group a rank of s->world has. */
int64_t choir__synced_count(const choir__synced *s, int64_t group, int rank);

/* Returns the run's SyncBatchNorm, or NULL. */
choir__synced *choir__synced_of(const choir_scope *run);

#endif
