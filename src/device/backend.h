/* The functions that a backend provides for one kind of device. The registry (device.c) lists
 * the backends. */
#ifndef CHOIR_BACKEND_H
#define CHOIR_BACKEND_H

#include <stdio.h>

#include "device/device.h"
#include "device/far.h"
#include "device/stream.h"

typedef struct choir__backend {
    const char *kind; /* "cpu" */
    /* Returns the number of devices. If it is 0, `why` receives the reason as a sentence. */
    int (*count)(char *why, size_t bytes);
    /* Sets queue, pool, kernels, reference and backend; name, kind and index are already
     * set. */
    choir_status (*open)(choir_device *device);
    choir_status (*set_threads)(choir_device *device, int threads);
    /* Refuses what the environment asks for and the kind does not have. NULL: nothing is asked.
     */
    choir_status (*check)(void);
    /* Returns true if products of dtype are faster than f32 products. */
    bool (*multiplies)(choir_dtype dtype);
    /* Returns true if products of dtype take choir__k_matmul.b_held. NULL: they never do. */
    bool (*reads_blocks)(choir_dtype dtype);
    /* Writes what determines the bits of results apart from the program: instruction set,
     * libraries, threads. */
    void (*signature)(const choir_device *device, char *text, size_t bytes);

    /* --- devices that are cores; NULL for others --- */
    /* Makes the device's worker, which must not have started, run on the cores of device
     * `index`. */
    void (*place)(choir_device *device, int index);
    /* Binds the calling thread to the device's cores. */
    void (*bind_thread)(choir_device *device);
    /* See choir__device_divide. */
    void (*divide)(choir_device *device, const choir__device_work *work);

    /* --- devices that are not cores; NULL for others --- */
    const choir__far *far; /* access to their memory */
    bool dry; /* nothing is behind that memory, and programs see devices of the host's memory */
    choir__gpu_stream *(*stream)(choir_device *device);
    void (*memory_note)(const choir_device *device, char *text, size_t bytes);
    /* Stores what the driver reports about device `index`, into zeros; false: nothing. */
    bool (*describe)(int index, choir__device_facts *facts);
    /* Writes what the libraries of an open device, whose queue is idle, have done so far. */
    void (*libraries)(const choir_device *device, choir__library_use use[CHOIR__LIBRARIES]);
} choir__backend;

extern const choir__backend choir__cpu_backend, choir__dry_backend;

#endif
