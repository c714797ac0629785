/* What a kind of device must offer to stand in the registry. */
#ifndef CHOIR_BACKEND_H
#define CHOIR_BACKEND_H

#include <stdio.h>

#include "device/device.h"

typedef struct choir__backend {
    const char *kind; /* "cpu" */
    int (*count)(void);
    /* Fills in queue, pool, kernels, reference and backend; name, kind and index are set. */
    choir_status (*open)(choir_device *device);
    choir_status (*set_threads)(choir_device *device, int threads);
} choir__backend;

extern const choir__backend choir__cpu_backend;

#endif
