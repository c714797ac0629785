/* The tree reduction by algorithms that do not add in the fixed tree. */
#ifndef CHOIR_COMM_TREE_BY_NAME_H
#define CHOIR_COMM_TREE_BY_NAME_H

#include "comm/engine.h"

/* Returns true if the call is a tree reduction for which such an algorithm was requested. */
bool choir__tree_by_name(const choir__call *call);

/* Runs that call by an all-reduce of the engine. */
choir_status choir__tree_run_by_name(choir__engine *engine, const choir__call *call);

#endif
