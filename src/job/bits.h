/* The class of bits that a job's products have: --bits. */
#ifndef CHOIR_JOB_BITS_H
#define CHOIR_JOB_BITS_H

#include "job/job_rank.h"

/* The values of --bits, for its row in the table of options; NULL behind the last. */
const char *choir__job_bits_names(size_t i);

/* Settles the class: the one that --bits or CHOIR_MATH names, or the fastest that all ranks
 * have. The process computes in it until choir__job_drop_bits. `launched`: the ranks may be on
 * several machines, and exchange the classes that each has; ranks that are forks of one process
 * need not. Errors: mismatch (a rank lacks the class), state (another job of this process has
 * another class). Collective if launched. */
choir_status choir__job_take_bits(choir__job_rank *part, bool launched);
void choir__job_drop_bits(choir__job_rank *part);

/* Returns true if the job's devices are GPUs, which have a class of their own. */
bool choir__job_has_gpus(const choir__job_placement *placement);

/* Goes over to the class in which this job has computed so far. Errors: as above. */
choir_status choir__job_keep_bits(choir__job_rank *part, const char *bits);

#endif
