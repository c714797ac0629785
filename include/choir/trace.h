/* Profiles and traces: which kernel took how long, and when.
 *
 *     choir_trace *trace = choir_trace_new(0);
 *     choir_trace_device(trace, choir_device_find("cpu:0"));
 *     ... train ...
 *     choir_trace_print(trace, stdout, 0);       a table, most expensive first
 *     choir_trace_write(trace, "trace.json", 0); for ui.perfetto.dev or chrome://tracing
 *     choir_trace_free(trace);
 *
 * Threads: one thread at a time. Collective: none. */
#ifndef CHOIR_TRACE_H
#define CHOIR_TRACE_H

#include <stdio.h>
#include <choir/device.h>
#include <choir/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_trace choir_trace;

/** One line of the profile: all calls of a kernel with operands of one size. */
typedef struct choir_trace_line {
    const char *name, *shape; /* "matmul", "512x768x3072"; shape "" where it is not told */
    int64_t calls;
    double seconds;
    double flops; /* of matrix products, convolutions, attention; 0: not counted */
} choir_trace_line;

/** Keeps the times of up to `events` kernels for choir_trace_write (0: a million); the profile
 * counts all of them. */
choir_trace *choir_trace_new(size_t events);
/** Stops it first. NULL is fine. */
void choir_trace_free(choir_trace *trace);

/** Watches what a device runs from now on; and a group's collectives. */
void choir_trace_device(choir_trace *trace, choir_device *device);
void choir_trace_group(choir_trace *trace, choir_group *group);

/** Watches no more; what was seen stays. */
void choir_trace_stop(choir_trace *trace);

/** A span of the host's time, between two calls of choir_trace_now(). */
double choir_trace_now(void);
void choir_trace_span(choir_trace *trace, const char *name, double start, double end);

/** Waits for what is watched; -> its lines, the most expensive first, until the next call of
 * this on the trace. FLOPs: a product of (M, K) by (K, N) counts 2 M N K, a convolution as the
 * product it is, attention 4 D a query and key that it sees, and 8 D backward, a
 * recurrent layer the products of its steps. */
const choir_trace_line *choir_trace_profile(choir_trace *trace, int *count);

/** The profile as a table. matmul_rate in FLOP/s (choir_trace_matmul_rate), 0: unknown. */
void choir_trace_print(choir_trace *trace, FILE *out, double matmul_rate);

/** Measures the rate of a product of 1024 x 1024 x 1024 f32 on the device, in FLOP/s. */
double choir_trace_matmul_rate(choir_device *device);

/** Writes the events in Chrome's trace format as process `rank`. Errors: io. */
choir_status choir_trace_write(choir_trace *trace, const char *path, int rank);

#ifdef __cplusplus
}
#endif
#endif
