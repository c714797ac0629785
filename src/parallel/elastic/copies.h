/* Copies of the ranks' state, from which ranks that are rebuilt or started again continue.
 *
 * Each rank writes, between two steps, its part of the training's tensors to memory that
 * outlives its process: two memfds that the job's supervisor holds, too, or the agent of `choir
 * run`. They take turns, so one of them is complete at any instant, even if the rank is killed
 * while it writes the other.
 *
 *     rank 0   [ step 17 | step 18 ]      All ranks have a copy of step 17: none finishes a
 *     rank 1   [ step 17 | step 16 ]      step before all have begun it, hence have copied the
 *     rank 2   [ step 17 | step 18 ]      one before. The job continues from step 17.
 *
 * Under agents on several machines each copy is also sent to the next machine, where the agent
 * keeps it in two memfds as well, so that the loss of a machine takes none along. A thread
 * sends it while the step runs; before the next copy, every rank waits until all copies of the
 * last step have arrived. So what holds above holds for both places.
 *
 * A copy is boxes of whole tensors, as in a checkpoint; so the ranks of the next generation may
 * be fewer or more, and divide the tensors in another way. */
#ifndef CHOIR_ELASTIC_COPIES_H
#define CHOIR_ELASTIC_COPIES_H

#include <choir/amp.h>
#include "parallel/elastic/elastic.h"

/* The numbers of a copy; rank 0's are used. */
typedef struct choir__copied {
    int64_t steps, optim_steps;
    choir_scaler_state scale;
} choir__copied;

typedef struct choir__copies choir__copies;

/* Under agents: returns in *kept whether all ranks' agents keep memory for them. If only some
 * do, the first rank says on standard error why no copies are kept. Collective. Errors: env's
 * group's. */
choir_status choir__copies_agents(const choir_elastic *elastic, bool *kept);

/* Finds the existing copies. Collective. Errors: memory, the run's, env's group's. */
choir_status choir__copies_open(choir_elastic *elastic, choir__copies **copies);
/* Takes the memory for new copies, once everything has been restored. If any rank gets none,
 * *ready is false on all of them, and the first rank says why no copies are kept. Collective.
 * Errors: env's group's. */
choir_status choir__copies_prepare(choir__copies *copies, bool *ready);
void choir__copies_close(choir__copies *copies); /* NULL is fine */

/* Returns whether a state was found to continue from, and its number of steps. */
bool choir__copies_found(const choir__copies *copies, int64_t *steps);

/* Copies this rank's part of the state after elastic->steps steps. Collective where machines
 * send each other copies. Errors: memory, the group's. */
choir_status choir__copies_take(choir__copies *copies);
/* Waits until the last copy is where it belongs. */
choir_status choir__copies_settle(choir__copies *copies);

/* Returns the number of steps of the state whose copies the supervisor of this process's crew
 * has; -1: no copies. All ranks of a generation get the same answer until one of them takes or
 * drops a copy. */
int64_t choir__copies_kept_step(void);

/* This rank's copies no longer count: their numbers are known to be wrong. */
void choir__copies_withdraw(choir__copies *copies);

/* Gives back the memory of all copies except the copies of the state that was found. Called on
 * every rank when some cannot keep copies, after choir__copies_prepare. */
void choir__copies_drop(const choir__copies *copies);

/* Sets this rank's tensors, and the program's own state, from the copies, and stores their
 * numbers. Call it only if there are copies. Collective where they are on several machines.
 * Errors: state (the copies lack something), memory, the group's. */
choir_status choir__copies_restore(choir__copies *copies, choir__copied *numbers);

#endif
