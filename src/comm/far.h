/* Calls on far memory (device/far.h), for engines that want the host's: data go through pinned
 * staging memory, in pieces where the operation allows it.
 *
 *     far in --get--> staging --the engine's call--> staging --put--> far out
 *
 * How a call is cut follows from what all ranks give alike, so ranks whose memory is far make
 * the same calls. One whose memory is not makes another where there are several pieces, which
 * the engine notices and names. */
#ifndef CHOIR_COMM_FAR_H
#define CHOIR_COMM_FAR_H

#include "comm/engine.h"

typedef choir_status choir__runner(choir__engine *engine, const choir__call *call);

/* Whether some of its data are far. */
bool choir__call_is_far(const choir__call *call);

/* Runs such a call, not one of point to point, by `run`; further pieces are numbered as calls
 * of their own. Errors: memory that fails to be had, and the device's, which the peers are
 * told. */
choir_status choir__far_run(choir__engine *engine, const choir__call *call, choir__runner *run);

/* Sends and receives, some of which may be far, side by side: the engine's run_batch. */
choir_status choir__far_batch(choir__engine *engine, const choir__call *calls, int count);

/* choir__far_copy copies where either side may be far. choir__far_fail makes a failure of such
 * a copy the group's, which all ranks are told; with CHOIR_OK it returns the engine's status.
 */
choir_status choir__far_copy(void *to, const void *from, size_t bytes);
choir_status choir__far_fail(choir__engine *engine, choir_status status);

void choir__staging_free(struct choir__staging *staging); /* NULL is fine */

#endif
