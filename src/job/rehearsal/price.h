/* The time of a rehearsed step: its recording, replayed on a machine (forecast/replay.h). */
#ifndef CHOIR_JOB_REHEARSAL_PRICE_H
#define CHOIR_JOB_REHEARSAL_PRICE_H

#include "forecast/replay.h"
#include "job/rehearsal/rehearsal.h"

/* The place of replays: a described cluster, or this machine. */
typedef struct choir__machine {
    choir__cluster place;
    choir__costs costs; /* this machine's table */
    bool calibrated;    /* this machine has been calibrated */
    bool described;     /* a file has described the cluster */
} choir__machine;

typedef struct choir__step_price {
    double ms, low_ms, high_ms;       /* NaN: unknown */
    double idle;                      /* share of the devices' time */
    double measured;                  /* share of the times that is from a measured table */
    double link_bytes[CHOIR__LEVELS]; /* sent per step by all ranks, by level */
} choir__step_price;

/* Describes the machine for devices such as "cpu:0": the cluster of a file, or if `file` is
 * NULL this machine, by its calibration if it has one and else by a preset. The caller frees
 * *machine, also after an error. Errors: as choir__cluster_read, and a calibration of another
 * machine. */
choir_status choir__machine_find(const char *file, const char *device, choir__machine *machine);
/* Lets a machine of presets have that many devices, on several nodes; a described cluster has
 * its own. */
void choir__machine_extend(choir__machine *machine, int64_t devices);
void choir__machine_free(choir__machine *machine);
/* Writes where the times are from, such as "this machine's calibration (measured)". */
const char *choir__machine_figures(const choir__machine *machine, char text[256]);

/* Replays a rehearsal's step, with jitter as often as `draws` says; 0: low_ms = high_ms = ms. A
 * step that was not recorded has no time. times NULL, or the
 * forecast with the time of each entry, which the caller frees. Errors: as choir__replay. */
choir_status choir__rehearsal_price(const choir__rehearsal *rehearsal,
    const choir__machine *machine, int draws, choir__step_price *price, choir__forecast *times);

#endif
