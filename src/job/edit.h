/* Exact edits of a run: batches that it leaves out, and the return to an earlier step.
 *
 * A skipped batch is taken out of the order of the data, and out of nothing else. Step k trains
 * on the k-th batch that is left, with the random numbers, the learning rate, the evaluation
 * and the save of step k. The job does as many steps as before, so its last steps reach later
 * batches. A run that leaves a batch out from its beginning, and a run that goes back before
 * the batch and leaves it out then, have the same bits, on any strategy and any number of
 * ranks.
 *
 *     batches     1 2 3 4 5 6 7 8 ...         --skip-batches 3:6
 *     steps       1 2       3 4 5 ...
 *
 * Everything that counts steps counts the lower row: --steps, --epochs (a number of steps),
 * --eval-epochs, lines of epochs. The permutation of the data and the random changes of samples
 * belong to the epoch of the batch. The checkpoint of step k has been trained on the first k
 * batches that are left. So a resumed job may leave out later batches, and has to go back to
 * leave out earlier ones. Lists add up: batches that its checkpoint has left out stay so. */
#ifndef CHOIR_JOB_EDIT_H
#define CHOIR_JOB_EDIT_H

#include "data/loading/skips.h"
#include "job/job.h"

/* Checks the form of --skip-batches. Error: argument. */
choir_status choir__job_check_skips(choir__job *job);

/* Joins the list with the list of the checkpoint that is resumed. Error: argument (a batch on
 * which the checkpoint has been trained). */
choir_status choir__job_join_skips(choir__job *job);

/* Refuses batches that the job would never reach, when its number of steps is known. Error:
 * argument. */
choir_status choir__job_check_skips_end(choir__job *job);

/* Makes the job leave out this list instead. */
void choir__job_set_skips(choir__job_data *data, const choir__skips *skips);

/* Returns the job's list, which has been checked; the caller frees it. */
choir__skips choir__job_skips(const choir__job_data *data);

/* --rewind: makes --resume name the newest checkpoint of the run that is not behind that step.
 * Error: argument. */
choir_status choir__job_rewind(choir__job_saves *saves, const char *run);

#endif
