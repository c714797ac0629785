/* Calls on far memory (device/far.h), for engines that expect host memory: data travel through
 * pinned staging memory, in pieces where the operation allows it.
 *
 *     far in --get--> staging --the engine's call--> staging --put--> far out
 *
 * A call is cut only by arguments that all ranks share, so ranks with far memory make the same
 * calls. A rank without far memory makes a different call if there are several pieces; the
 * engine detects and reports that. */
#ifndef CHOIR_COMM_FAR_H
#define CHOIR_COMM_FAR_H

#include "comm/engine.h"

typedef choir_status choir__runner(choir__engine *engine, const choir__call *call);

/* Returns true if some of the call's data are in far memory. */
bool choir__call_is_far(const choir__call *call);

/* Runs such a call, except point-to-point ones, by `run`; further pieces are numbered as calls
 * of their own. Errors: memory that cannot be allocated, and the device's errors; the peers are
 * notified of both. */
choir_status choir__far_run(choir__engine *engine, const choir__call *call, choir__runner *run);

/* Runs sends and receives concurrently by the engine's run_batch; some may be on far memory. */
choir_status choir__far_batch(choir__engine *engine, const choir__call *calls, int count);

/* choir__far_copy copies between two addresses; either may be far. choir__far_fail makes a
 * failure of such a copy the group's, and notifies all ranks; with CHOIR_OK it returns the
 * engine's status. */
choir_status choir__far_copy(void *to, const void *from, size_t bytes);
choir_status choir__far_fail(choir__engine *engine, choir_status status);

void choir__staging_free(struct choir__staging *staging); /* NULL is fine */

#endif
