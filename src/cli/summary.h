/* --summary: the tree of a model with shapes, parameters, FLOPs and memory. */
#ifndef CHOIR_CLI_SUMMARY_H
#define CHOIR_CLI_SUMMARY_H

#include "job/job.h"

/* Prints the tree of the job's model, and what a micro-batch takes on one device. The job has
 * been prepared. */
choir_status choir__summary(const choir__job *job);

#endif
