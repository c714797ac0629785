/* A process's part of a job: its devices, and the model, optimizer and loader on them. */
#ifndef CHOIR_JOB_PART_H
#define CHOIR_JOB_PART_H

#include "job/job.h"
#include "job/report/report.h"

/* Checks that the ranks have one job. Collective. */
typedef choir_status choir__job_agree_fn(const choir__job *job, choir_group *group);

/* Joins the other ranks, which agree first, and opens this process's devices. Collective. */
choir_status choir__job_rank_open(
    choir__job_rank *part, const choir__job *job, choir__job_agree_fn *agree);

/* Builds the model, wraps it as the strategy says, makes the optimizer and the loader.
 * Collective. */
choir_status choir__job_rank_build(choir__job_rank *part);

/* Takes over env's ranks, which have changed: choir/elastic.h. */
void choir__job_rank_changed(choir__job_rank *part);

/* Computes the mean loss of the job from the losses of this rank's micro-batches. Collective.
 */
choir_status choir__job_rank_mean(
    const choir__job_rank *part, const float *losses, float *mean);

/* Waits for all devices of the part. */
choir_status choir__job_rank_sync(const choir__job_rank *part);

/* Starts the measurement of the devices' figures. */
void choir__job_rank_start(choir__job_rank *part);

/* Gathers the devices' figures of all parts, in the order of the ranks, and stores their number
 * in *count. The caller frees the array. Collective. */
choir_status choir__job_rank_figures(
    const choir__job_rank *part, choir__device_figures **figures, int *count);

void choir__job_rank_close(choir__job_rank *part);

#endif
