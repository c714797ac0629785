/* Copies of the ranks' state, from which ranks that are rebuilt go on.
 *
 * Each rank writes, between two steps, its part of the training's tensors to memory that
 * outlives its process: two memfds that the job's supervisor holds, too. They take turns, so
 * one of them is complete at any instant, even if the rank is killed while it writes the other.
 *
 *     rank 0   [ step 17 | step 18 ]      All ranks have a copy of step 17: none finishes a
 *     rank 1   [ step 17 | step 16 ]      step before all have begun it, hence have copied the
 *     rank 2   [ step 17 | step 18 ]      one before. The job goes on from step 17.
 *
 * A copy is boxes of whole tensors, as in a checkpoint; so the ranks of the next generation may
 * be fewer or more, and divide the tensors in another way. */
#ifndef CHOIR_ELASTIC_COPIES_H
#define CHOIR_ELASTIC_COPIES_H

#include <choir/amp.h>
#include "parallel/elastic/elastic.h"

/* The numbers of a copy: those of rank 0 count. */
typedef struct choir__copied {
    int64_t steps, optim_steps;
    choir_scaler_state scale;
} choir__copied;

/* Copies this rank's part of the state after e->steps steps. Error: memory. */
choir_status choir__copies_take(choir_elastic *elastic);

/* Returns whether there are copies of a state. All ranks of a generation get the same answer
 * until one of them takes a copy. */
bool choir__copies_exist(void);

/* Sets this rank's tensors, and the program's own state, to those of the copies, and tells the
 * numbers. Call it only if there are copies. Errors: state (the copies lack something), memory.
 */
choir_status choir__copies_restore(choir_elastic *elastic, choir__copied *numbers);

/* Returns the bytes of memory that this rank's copies take. */
size_t choir__copies_bytes(const choir_elastic *elastic);

void choir__copies_close(choir_elastic *elastic);

#endif
