/* The functions with which the registry (engines.c) opens engines; for shm it is
 * choir__shm_open. */
#ifndef CHOIR_COMM_OPENERS_H
#define CHOIR_COMM_OPENERS_H

#include "comm/engine.h"

typedef choir_status choir__engine_opener(choir__meeting *meeting, choir__engine **engine);

/* choir__open_ucx puts the hierarchy over UCX if the nodes allow it. choir__open_mpi loads the
 * plug-in of the MPI that started the ranks. choir__open_nccl opens the engine that a job
 * without GPUs would use, and puts NCCL's engine over it. */
choir__engine_opener choir__open_ucx, choir__open_mpi, choir__open_nccl;

/* Returns true if all ranks are on one machine; if not, *other is a rank on another machine
 * than rank 0. */
bool choir__on_one_machine(const choir__meeting *meeting, int *other);

/* The hierarchical engine: shared memory inside a node, another engine between nodes. */

/* Returns true if there are several nodes, their ranks are contiguous in rank order, and all
 * have the same number of ranks, which is a power of two and at least 2. */
bool choir__hierarchy_fits(const choir__meeting *meeting);

/* Opens the hierarchy over `whole`, an engine of all ranks, which it then owns, even if it
 * fails. Collective. */
choir_status choir__hierarchy_open(
    choir__engine *whole, const choir__meeting *meeting, choir__engine **engine);

#endif
