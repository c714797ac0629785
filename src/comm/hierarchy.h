/* Shared memory inside a node, another engine between nodes. */
#ifndef CHOIR_COMM_HIERARCHY_H
#define CHOIR_COMM_HIERARCHY_H

#include "comm/engine.h"

/* Whether nodes follow one another in rank order with the same number of ranks, two or more and
 * a power of two, and there are several nodes. */
bool choir__hierarchy_fits(const choir__meeting *meeting);

/* Puts itself over `whole`, an engine of all ranks, which it owns from now on, also when it
 * fails. Collective. */
choir_status choir__hierarchy_open(
    choir__engine *whole, const choir__meeting *meeting, choir__engine **engine);

#endif
