/* A rehearsal: a job's own program, from the set-up of its ranks to the end of its steps, on
 * dry devices (choir/dry.h) and dry ranks (comm/dry). It takes neither the job's devices nor
 * their memory, and tells what each of them would hold. */
#ifndef CHOIR_JOB_REHEARSAL_H
#define CHOIR_JOB_REHEARSAL_H

#include <choir/dry.h>

#include "forecast/step.h"
#include "job/job.h"

/* A device of a rank, and of all ranks that do the same. */
typedef struct choir__rehearsed_device {
    char name[CHOIR__JOB_DEVICE_NAME]; /* the first rank's of the job's devices, as "cpu:0" */
    int alike;                         /* number of devices with these counts */
    choir_dry_counts counts;
    size_t staged; /* samples that the rank keeps ready, on its first device; else 0 */
} choir__rehearsed_device;

/* A part of a device's peak: see choir_dry_part. */
typedef struct choir__rehearsed_part {
    char *name;       /* NULL: no one's */
    const char *kind; /* "activations" */
    size_t bytes;
} choir__rehearsed_part;

typedef struct choir__rehearsal {
    int world, each;                  /* ranks, and devices of a rank */
    choir__rehearsed_device *devices; /* (device_count): of each class, (each) */
    int device_count;
    /* (part_count) parts of the memory at the peak of device `fullest` */
    choir__rehearsed_part *parts;
    int part_count, fullest;
    char (*names)[CHOIR__JOB_DEVICE_NAME]; /* (world, each), if these are few; else NULL */
    int *class_of; /* (world) number of each rank's class of equal ranks (classes.c) */
    int classes;
    int64_t parameters;
    bool holds;    /* asked for before it runs: the memory at each kernel
                      (choir__step_program.held) */
    int64_t steps; /* steps that the rehearsal has made */
    /* The recorded step (step_program.c), a program for each class; without entries, if a rank
     * recorded none. */
    choir__step step;
    bool scouting; /* the rehearsal ends when the model is built, and only fills in rows */
    int64_t *rows; /* (row_count): different numbers of rows, each cut over ranks */
    int row_count;
} choir__rehearsal;

enum {
    CHOIR__MOST_CLASSES = 1024,
    CHOIR__REHEARSED_SCOPES = 4 /* closed scopes that each rank remembers; a job's, more */
};

/* Rehearses a job that is prepared, and leaves it as it was. The caller frees *r. Errors: the
 * job's, memory among them: devices refuse it beyond --mem-cap, as they would. */
choir_status choir__job_rehearse(const choir__job *job, choir__rehearsal *r);
void choir__rehearsal_free(choir__rehearsal *r);

/* classes.c: fills in class_of and classes. Without rows, ranks with other shares of weights
 * are in one class. Error: argument, more classes than are followed. */
choir_status choir__rehearsal_classify(choir__rehearsal *r, const choir__job *job);
/* Returns the number of batches of a rehearsed validation: two per rank that shares them, or
 * fewer if the job has fewer. */
int64_t choir__rehearsal_batches(const choir__job *job);

/* resident.c: returns the resident memory of all ranks' processes, if its devices are CPU
 * devices. */
size_t choir__rehearsal_resident(const choir__rehearsal *r);

/* --- for the rank that is rehearsed --- */

/* Opens device `i` of this rank's, which stands for the job's device. */
choir_device *choir__rehearsal_device(const choir__job_placement *placement, int rank, int i);

/* Takes what the rank's devices have counted, when its steps are done. */
choir_status choir__rehearsal_note(choir__rehearsal *r, const struct choir__job_rank *part);

/* parts.c: keeps the parts of device i, where it is the fullest so far; drops them. */
choir_status choir__rehearsal_note_parts(choir__rehearsal *r, choir_device *device, int i);
void choir__rehearsal_drop_parts(choir__rehearsal *r);

/* Returns samples of the sizes of `of`, all zeros; the caller frees them. */
choir_dataset *choir__rehearsal_blank(const choir_dataset *of);

/* Adds the rank's program to the step. */
void choir__rehearsal_record(choir__rehearsal *r, const struct choir__job_rank *part);

#endif
