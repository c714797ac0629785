/* Options of a job that do not go together. Those that exclude or need one another whatever the
 * job is say so in the table of options; the others are rows of a table here. */
#ifndef CHOIR_JOB_PAIRS_H
#define CHOIR_JOB_PAIRS_H

#include "job/job.h"

/* Checks the options of the table. Error: argument. */
choir_status choir__job_check_pairs(choir__job *job);

/* Checks options that need a kind of strategy, which is known. Error: argument. */
choir_status choir__job_check_strategy(choir__job *job);

#endif
