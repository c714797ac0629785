/* A process's part of a job: its devices, and what lies on them. */
#ifndef CHOIR_CLI_PART_H
#define CHOIR_CLI_PART_H

#include "cli/job.h"
#include "cli/report.h"

/* Meets the other ranks and takes the devices. Collective. */
choir_status choir__cli_part_open(choir__cli_part *part, const choir__job *job);

/* Builds the model, wraps it as the strategy says, makes the optimizer and the loader.
 * Collective. */
choir_status choir__cli_part_build(choir__cli_part *part);

/* The mean of the job's losses, of which this rank has read its own. Collective. */
choir_status choir__cli_part_mean(
    const choir__cli_part *part, const float *losses, float *mean);

/* Waits for all its devices. */
choir_status choir__cli_part_sync(const choir__cli_part *part);

/* The devices' figures count from here on. */
void choir__cli_part_start(choir__cli_part *part);

/* Those of all parts, rank by rank: *count of them, for the caller to free. Collective. */
choir_status choir__cli_part_figures(
    const choir__cli_part *part, choir__device_figures **figures, int *count);

void choir__cli_part_close(choir__cli_part *part);

#endif
