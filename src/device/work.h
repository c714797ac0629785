/* The work of a kernel call: its name, the size of its operands, its FLOPs, its traffic. */
#ifndef CHOIR_WORK_H
#define CHOIR_WORK_H

#include "device/cpu/ways.h"
#include "device/device.h"

enum { CHOIR__WORK_DIMS = 4 };

typedef struct choir__kernel_work {
    choir__kernel_id id; /* CHOIR__KERNEL_COUNT: none of the device's kernels */
    const char *name;    /* NULL: none of them */
    char shape[64];      /* "" if the size is not reported */
    double flops;        /* FLOPs of matrix products, convolutions, attention; else 0 */
    /* bytes of the operands: each is read or written once, those that accumulate twice */
    double bytes;
    /* what the time of such a kernel depends on, apart from the two above; unused ones are 0:
     *   matrix products                 batch, m, n, k
     *   convolutions                    rows of the result, channels, terms of a sum, groups
     *   attention                       heads of all samples, queries, keys, width of a head
     *   recurrent layers                steps, samples, width, gates
     *   others                          rows, columns; or elements */
    int64_t dims[CHOIR__WORK_DIMS];
    choir_dtype dtype; /* the operands' */
} choir__kernel_work;

/* Writes the name and size of a call for messages; unlike choir__kernel_work_of, kernels that
 * have only rows and columns, or elements, get a size too. */
const char *choir__kernel_work_text(const choir_device *device, choir__queue_task *fn,
    const void *args, char *text, size_t bytes);

/* Returns the work of a task of the device's queue. */
choir__kernel_work choir__kernel_work_of(
    const choir_device *device, choir__queue_task *fn, const void *args);

/* Returns the kernel that a task is; CHOIR__KERNEL_COUNT: none of the device's. */
choir__kernel_id choir__kernel_of(const choir_device *device, choir__queue_task *fn);

/* Returns the work of a call of a kernel, without its shape as a text. */
choir__kernel_work choir__kernel_work_by(choir__kernel_id id, const void *args);

/* work_size.c: fills in flops, bytes, dims and dtype. */
void choir__kernel_size(choir__kernel_id id, const void *args, choir__kernel_work *work);

#endif
