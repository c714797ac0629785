/* choir tune: the devices and the memory of the machine, and how many trials there is room for.
 */
#ifndef CHOIR_CLI_TUNE_MACHINE_H
#define CHOIR_CLI_TUNE_MACHINE_H

#include "tune/trials/place.h"

enum { CHOIR__TUNE_DEVICES = 1024 };

typedef struct choir__tune_machine {
    const char *devices; /* --devices; NULL: trials are not bound to any */
    int64_t devices_each;
    int64_t memory_each; /* bytes; 0: no limit */
    /* The devices of each trial; NULL: none are bound */
    choir__trial_place *places; /* (place_count) */
    int place_count;
} choir__tune_machine;

/* Divides the devices among the trials, and checks or chooses how many run at once: *parallel,
 * 0: unspecified. Returns an exit status. */
int choir__tune_machine_read(choir__tune_machine *m, int64_t *parallel);

#endif
