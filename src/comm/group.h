/* Inside a group: its queue, memory that peers can read, the tree reduction of gradients. */
#ifndef CHOIR_COMM_GROUP_H
#define CHOIR_COMM_GROUP_H

#include <choir/group.h>
#include "device/queue.h"

/* The queue that carries the group's collectives: strategies make it wait for devices' events
 * and devices wait for its own. */
choir__queue *choir__group_queue(choir_group *group);

/* Bytes this rank has sent to or fetched from peers so far. */
uint64_t choir__group_bytes(const choir_group *group);

/* Memory every rank of the group can read and write: one region a rank, each of its own size (a
 * memfd, sealed against shrinking, passed over a Unix socket, mapped by all). Zero-filled. */
typedef struct choir__shared choir__shared;

/* Collective, blocking. bytes may differ from rank to rank and may be 0. */
choir_status choir__shared_new(choir_group *group, size_t bytes, choir__shared **shared);
void choir__shared_free(choir__shared *shared);
void *choir__shared_at(const choir__shared *shared, int rank); /* rank's region, mapped here */
size_t choir__shared_bytes(const choir__shared *shared, int rank);

/* The sum over the micro-batches of the job, in the fixed tree, times scale, out of buffers in
 * shared memory. Rank r holds the micro-batches [lo(r), hi(r)) of `leaves` (choir__tree_run),
 * summed into the nodes that choir__tree_nodes names for that run; node k of a rank lies at
 * offset + k * node_stride bytes of its region. The result (count f32) lands on every rank at
 * `offset`: node 0's place. In place, asynchronous, on the group's queue. */
typedef struct choir__tree_reduce {
    choir__shared *shared;
    size_t offset, node_stride;
    int64_t count, leaves;
    float scale;
} choir__tree_reduce;

void choir__group_tree_reduce(choir_group *group, const choir__tree_reduce *args);

/* The public collectives of these names, asynchronous, on the group's queue. mine must not be
 * written and data, all not be touched until the queue has passed. */
void choir__group_broadcast_issue(choir_group *group, void *data, size_t bytes, int root);
void choir__group_all_gather_issue(
    choir_group *group, const void *mine, void *all, size_t bytes);

/* Asynchronous barrier on the group's queue: tasks behind it run when all ranks have reached
 * it. */
void choir__group_barrier_issue(choir_group *group);

#endif
