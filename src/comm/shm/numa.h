/* Machines with several memory nodes: placement of memory, and sums on two levels. */
#ifndef CHOIR_SHM_NUMA_H
#define CHOIR_SHM_NUMA_H

#include "comm/reduce.h"
#include "comm/shm/shm.h"

/* Returns the memory node on which this rank runs. */
int choir__numa_node(int rank, int world);

/* Asks the kernel to place pages at `at` that are not allocated yet on that node. */
void choir__numa_place(void *at, size_t bytes, int node);

/* Sets shm->per_node and shm->levels_from by the nodes of all ranks. */
void choir__numa_levels(choir__shm *shm, const int nodes[CHOIR__MAX_WORLD]);

/* Returns true if a sum of `count` elements is faster on two levels. All ranks get the same
 * result. */
bool choir__numa_helps(const choir__shm *shm, const choir__reduce_task *r, int64_t count);

/* Does the work of choir__reduce for elements [0, count), distributed over all ranks. r->to
 * (world) is in the order of ranks; owners (sources) has the rank whose data a source is, in
 * ascending order. Ends with a step. */
choir_status choir__numa_reduce(
    choir__shm *shm, const choir__reduce_task *r, const int *owners, int64_t count);

#endif
