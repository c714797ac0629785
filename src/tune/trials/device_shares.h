/* The devices of a machine, divided among the trials that run at once.
 *
 * A trial's processes are bound to the cores of its CPU devices, and see its GPUs alone. So
 * they count their devices from cpu:0 and cuda:0 on, whatever they are, and `choir train`
 * uses all of them unless specified. */
#ifndef CHOIR_TUNE_DEVICE_SHARES_H
#define CHOIR_TUNE_DEVICE_SHARES_H

#include <sched.h>

#include "base/base.h"

enum { CHOIR__DEVICE_NAME = 32 }; /* bytes of "cuda:3" */

typedef struct choir__device_share {
    cpu_set_t cores;
    bool has_cores;
    char *gpus;    /* CUDA_VISIBLE_DEVICES; "": none */
    char *devices; /* names as the trial counts them: "cpu:0,cpu:1" */
    int count;     /* number of its devices */
} choir__device_share;

/* Divides devices (count) into shares of `each`; the rest is left over. Returns the shares
 * (count / each). */
choir__device_share *choir__device_shares_new(
    char (*names)[CHOIR__DEVICE_NAME], int count, int each);
void choir__device_shares_free(choir__device_share *shares, int count);

/* Gives the share to this process. Call it in a trial's first process, before exec. */
void choir__device_share_enter(const choir__device_share *share);

#endif
