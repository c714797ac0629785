/* --devices LIST: the devices of a job, or of a search. */
#ifndef CHOIR_JOB_DEVICES_H
#define CHOIR_JOB_DEVICES_H

#include <stddef.h>
#include <choir/status.h>

enum { CHOIR__JOB_DEVICE_NAME = 32 }; /* bytes of "cuda:3" */

/* Reads "cpu:0,cpu:2-4", which names cpu:0 cpu:2 cpu:3 cpu:4; NULL and "auto" are all GPUs, or
 * all cores of a machine without GPUs. Stores at most `room` names. Errors: argument (it is
 * no such list), device (one is not there). */
choir_status choir__job_devices_read(
    const char *text, char (*names)[CHOIR__JOB_DEVICE_NAME], size_t room, int *count);

/* Reads such a list of devices that may be elsewhere. A single range may have more devices than
 * `room`: *count is then above it. Error: argument. */
choir_status choir__job_devices_list(
    const char *text, char (*names)[CHOIR__JOB_DEVICE_NAME], size_t room, int *count);

#endif
