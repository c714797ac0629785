/* Dry devices: "dry:0", "dry:1", ... run a program without its kernels.
 *
 * Tensors, modules, strategies and optimizers work on a dry device as on a CPU device: in the
 * same order, with the same sizes. But no kernel runs and no tensor takes memory, so a model
 * that fits on no machine can be built, and a step of it counted. choir_device_get_stats has
 * the bytes that the program would hold.
 *
 *     choir_device *device = choir_device_find("dry:0");
 *     choir_check(choir_dry_stand_in(device, 1));    (what the program reads from then on)
 *     ... build the model, run some steps ...
 *     choir_check(choir_dry_count(device, &counts));
 *
 * The environment variable CHOIR_DEVICE=dry makes it the device of a program that names none.
 *
 * Threads: as in choir/device.h. */
#ifndef CHOIR_DRY_H
#define CHOIR_DRY_H

#include <choir/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The counts of a dry device since it was opened, or since choir_dry_restart. */
typedef struct choir_dry_counts {
    uint64_t launches; /* kernels */
    double flops;      /* matrix products, convolutions, attention */
    double traffic;    /* bytes that kernels would read and write, each operand once */
    size_t bytes_peak; /* as in choir_device_stats; the next four are its parts */
    size_t peak_weights, peak_gradients, peak_optimizer;
    size_t peak_other;       /* the rest; the next three are its parts */
    size_t peak_activations; /* results of ops, batches, gradients of results */
    size_t peak_workspace;   /* memory that kernels and optimizers use while they run */
    size_t peak_messages;    /* buffers of communication */
    size_t bytes_reserved; /* most memory that the device takes from the system: live and cached
                              blocks, in the sizes that it has */
    size_t bytes_resident; /* used bytes of the blocks, and copies of weights that kernels of
                              CPU devices keep: resident memory of the process */
} choir_dry_counts;

/** A part of a dry device's peak. */
typedef struct choir_dry_part {
    const char *name; /* a parameter, a module's path ("": the model's own ops), or in brackets
                         what belongs to several; NULL: no one's */
    const char *kind; /* "parameters", "gradients", "optimizer", "activations", "workspace",
                         "messages" */
    size_t bytes;     /* at the peak */
} choir_dry_part;

/** Receives a part; arg: the program's. */
typedef void choir_dry_part_fn(const choir_dry_part *part, void *arg);

/** Returns whether the device is a dry one. */
bool choir_device_is_dry(const choir_device *device);

/** Stores what a dry device has counted. Errors: argument (NULL, another kind of device). */
CHOIR_CHECKED choir_status choir_dry_count(choir_device *device, choir_dry_counts *counts);

/** Calls `each` for every part of the device's peak, which together are bytes_peak: what holds
 * the memory, by name. Errors: argument. */
CHOIR_CHECKED choir_status choir_dry_parts(
    choir_device *device, choir_dry_part_fn *each, void *arg);

/** Sets the counts of a dry device to zero, and its peak to the bytes that are live; cached
 * memory is released. Errors: argument. */
CHOIR_CHECKED choir_status choir_dry_restart(choir_device *device);

/** Lets values be read: from now on each element that is read from the device is `value`,
 * rounded to its dtype. Before the first call a read is an error, as a dry device computes no
 * values. Errors: argument. */
CHOIR_CHECKED choir_status choir_dry_stand_in(choir_device *device, double value);

#ifdef __cplusplus
}
#endif

#endif
