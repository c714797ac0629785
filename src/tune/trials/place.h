/* The devices of a machine, divided among the trials that run at once.
 *
 * A trial's processes are bound to the cores of its CPU devices, and see its GPUs alone. So
 * they count their devices from cpu:0 and cuda:0 on, whatever they are, and `choir train`
 * uses all of them unless specified. */
#ifndef CHOIR_TUNE_PLACE_H
#define CHOIR_TUNE_PLACE_H

#include <sched.h>

#include "base/base.h"

enum { CHOIR__DEVICE_NAME = 32 }; /* bytes of "cuda:3" */

typedef struct choir__trial_place {
    cpu_set_t cores;
    bool has_cores;
    char *gpus;    /* CUDA_VISIBLE_DEVICES; "": none */
    char *devices; /* names as the trial counts them: "cpu:0,cpu:1" */
    int count;     /* number of its devices */
} choir__trial_place;

/* Divides devices (count) into places of `each`; the rest is left over. Returns the places
 * (count / each). */
choir__trial_place *choir__places_new(char (*names)[CHOIR__DEVICE_NAME], int count, int each);
void choir__places_free(choir__trial_place *places, int count);

/* In a trial's first process, before exec. */
void choir__place_enter(const choir__trial_place *place);

#endif
