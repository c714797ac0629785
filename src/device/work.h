/* What a kernel call amounts to: its name, the size of its operands, the FLOPs it is worth. */
#ifndef CHOIR_WORK_H
#define CHOIR_WORK_H

#include "device/device.h"

typedef struct choir__work {
    const char *name; /* NULL: none of the device's kernels */
    char shape[64];   /* "" where size is not told */
    double flops;     /* of matrix products, convolutions, attention; else 0 */
} choir__work;

/* The same with a size for the kernels that have but rows and columns, or elements: for
 * messages. */
const char *choir__work_text(
    const choir_device *device, choir__task *fn, const void *args, char *text, size_t bytes);

choir__work choir__work_of(const choir_device *device, choir__task *fn, const void *args);

#endif
