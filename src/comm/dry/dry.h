/* Groups of dry ranks. */
#ifndef CHOIR_COMM_DRY_H
#define CHOIR_COMM_DRY_H

#include "comm/engine.h"

/* Returns whether the name of a backend asks for dry ranks. */
bool choir__dry_named(const char *backend);

/* Returns whether data of devices are not moved. */
bool choir__is_dry_engine(const choir__engine *engine);

/* Returns the ranks of the world that are members of a dry engine's group, in its order. */
const int *choir__dry_members(const choir__engine *engine);

/* Opens the engine of all ranks. The thread's choir__dry_world tells its rank and world;
 * without one, opts do, or RANK and WORLD_SIZE, and all ranks do then as this one does. Error:
 * argument. */
choir_status choir__dry_open(const choir_group_opts *opts, choir__engine **engine);

#endif
