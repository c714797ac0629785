/* Machines with several memory nodes: where memory lies, and sums on two levels. */
#ifndef CHOIR_SHM_NUMA_H
#define CHOIR_SHM_NUMA_H

#include "comm/reduce.h"
#include "comm/shm/shm.h"

/* The memory node this rank runs on. */
int choir__numa_node(int rank, int world);

/* Pages at `at` that are not there yet shall be of that node. */
void choir__numa_place(void *at, size_t bytes, int node);

/* Sets shm->per_node by the nodes of all ranks. */
void choir__numa_levels(choir__shm *shm, const int nodes[CHOIR__MAX_WORLD]);

/* Whether two levels beat one for `count` elements. All ranks find the same. */
bool choir__numa_helps(const choir__shm *shm, const choir__reduction *r, int64_t count);

/* Elements [0, count) of what choir__reduce would do, by all ranks together; r->to (world) in
 * the order of ranks, owners (sources): the rank whose data a source is, in order. Ends with a
 * step. */
choir_status choir__numa_reduce(
    choir__shm *shm, const choir__reduction *r, const int *owners, int64_t count);

#endif
