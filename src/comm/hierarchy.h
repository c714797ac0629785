/* The hierarchical engine: shared memory inside a node, another engine between nodes. */
#ifndef CHOIR_COMM_HIERARCHY_H
#define CHOIR_COMM_HIERARCHY_H

#include "comm/engine.h"

/* Returns true if there are several nodes, their ranks are contiguous in rank order, and all
 * have the same number of ranks, which is a power of two and at least 2. */
bool choir__hierarchy_fits(const choir__meeting *meeting);

/* Opens the hierarchy over `whole`, an engine of all ranks, which it then owns, even if it
 * fails. Collective. */
choir_status choir__hierarchy_open(
    choir__engine *whole, const choir__meeting *meeting, choir__engine **engine);

#endif
