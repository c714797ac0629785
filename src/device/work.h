/* The work of a kernel call: its name, the size of its operands, its FLOPs. */
#ifndef CHOIR_WORK_H
#define CHOIR_WORK_H

#include "device/device.h"

typedef struct choir__kernel_work {
    const char *name; /* NULL: none of the device's kernels */
    char shape[64];   /* "" if the size is not reported */
    double flops;     /* FLOPs of matrix products, convolutions, attention; else 0 */
} choir__kernel_work;

/* Writes the name and size of a call for messages; unlike choir__kernel_work_of, kernels that
 * have only rows and columns, or elements, get a size too. */
const char *choir__kernel_work_text(
    const choir_device *device, choir__task *fn, const void *args, char *text, size_t bytes);

choir__kernel_work choir__kernel_work_of(
    const choir_device *device, choir__task *fn, const void *args);

#endif
