/* What a kind of device must offer to stand in the registry. */
#ifndef CHOIR_BACKEND_H
#define CHOIR_BACKEND_H

#include <stdio.h>

#include "device/device.h"
#include "device/far.h"
#include "device/stream.h"

typedef struct choir__backend {
    const char *kind; /* "cpu" */
    /* How many there are; where that is 0, why says in a sentence what is missing. */
    int (*count)(char *why, size_t bytes);
    /* Fills in queue, pool, kernels, reference and backend; name, kind and index are set. */
    choir_status (*open)(choir_device *device);
    choir_status (*set_threads)(choir_device *device, int threads);
    /* Whether matrices of dtype are multiplied faster than those of f32. */
    bool (*multiplies)(choir_dtype dtype);
    /* What decides the bits of its results besides the program: instruction set, libraries,
     * threads. */
    void (*signature)(const choir_device *device, char *text, size_t bytes);

    /* Of devices that are cores; else NULL. */
    /* Its worker, which does not run, will run where that of device `index` does. */
    void (*place)(choir_device *device, int index);
    /* Ties the calling thread to the device's cores. */
    void (*bind_thread)(choir_device *device);

    /* Of devices that are not; else NULL. */
    const choir__far *far; /* their memory */
    choir__stream *(*stream)(choir_device *device);
    void (*memory_note)(const choir_device *device, char *text, size_t bytes);
    /* A line of JSON members on device `index` as its driver sees it, `"name":"H200",...`. */
    void (*describe)(int index, char *json, size_t bytes);
} choir__backend;

extern const choir__backend choir__cpu_backend;

#endif
