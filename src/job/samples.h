/* The samples of a recorded job, from its document alone: which ones a step trains on, without
 * the devices, ranks and strategy that did the work, since none of these has a say in it. */
#ifndef CHOIR_JOB_SAMPLES_H
#define CHOIR_JOB_SAMPLES_H

#include "job/job.h"

/* Reads the job of a run: its folder, the folder of a checkpoint, or a job file. The job can
 * open its data and its model's description, and trains nothing; the caller frees it. Errors:
 * argument, I/O, format. */
choir_status choir__samples_open(const char *run, choir__job *job);

/* A batch of the job. Numbers count from 1 as in a run's output, but samples from 0. */
typedef struct choir__samples {
    int64_t step; /* the step that trains on it; 0: no step does, since the job leaves it out */
    int64_t batch;          /* in the order of the data, which --skip-batches counts */
    int64_t epoch, batches; /* epoch of the data, and batches of an epoch */
    int64_t each;           /* samples of a micro-batch */
    int64_t *index;         /* (microbatches, each) numbers of samples in the training split */
} choir__samples;

/* Lists the batch of a step, or, if step is 0, the batch of that number; the caller frees
 * samples->index. Error: argument (beyond the job's last step). */
choir_status choir__samples_of(
    const choir__job *job, int64_t step, int64_t batch, choir__samples *samples);

#endif
