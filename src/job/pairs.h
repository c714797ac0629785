/* Options of a job that do not go together. Those that exclude or need one another whatever the
 * job is say so in the table of options; the others are rows of a table here. */
#ifndef CHOIR_JOB_PAIRS_H
#define CHOIR_JOB_PAIRS_H

#include "job/job.h"

/* Checks the options of the table. Returns like choir__job_check. */
int choir__job_check_pairs(const choir__job *job);

/* Checks options that need a kind of strategy, which is known. Returns like choir__job_check.
 */
int choir__job_check_strategy(const choir__job *job);

#endif
