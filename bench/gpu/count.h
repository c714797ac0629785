/* Counts a training step's kernels and their memory traffic: choir_bench_gpu --count. */
#ifndef CHOIR_BENCH_GPU_COUNT_H
#define CHOIR_BENCH_GPU_COUNT_H

#include "device/device.h"

/* Begins to count the tasks that run on the device. The optimizer's count by `parameters`, the
 * elements of all. */
void choir__count_begin(choir_device *device, int64_t parameters);
/* Ends it and prints a line for each kind of task, the largest traffic first, and their sums;
 * launches: of the step on the GPU, 0: unknown. */
void choir__count_end(const char *workload, int64_t batch, long launches, bool json);

/* Returns the number of kernels, products, fills and copies that the soft GPU has been given to
 * run so far; 0 on other devices. */
long choir__count_launches(void);

#endif
