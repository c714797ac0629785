/* The devices of a job's other ranks on this machine, as their boards show them
 * (base/board/board.h): rank 0 reads them, and the others do nothing for it. */
#ifndef CHOIR_JOB_PEER_DEVICES_H
#define CHOIR_JOB_PEER_DEVICES_H

#include "comm/flight/flight.h"

typedef struct choir__peer_devices {
    int *pids, pid_count;
    choir__seen **seen;    /* (pid_count) the latest readings; NULL: not read yet */
    double listed, looked; /* choir__now() */
} choir__peer_devices;

/* Called for each device; busy: NaN at the first look. */
typedef void choir__peer_fn(int rank, const choir__seen_device *device, double busy, void *arg);

/* Reads the boards and calls fn, at most twice per second; world: ranks of the job. */
void choir__peer_devices_look(
    choir__peer_devices *peers, int world, choir__peer_fn *fn, void *arg);
void choir__peer_devices_free(choir__peer_devices *peers);

#endif
