/* Profiles and traces: the duration of each kernel, and the time at which it ran.
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
    const char *name, *shape; /* "matmul", "512x768x3072"; shape: "" if unknown */
    int64_t calls;
    double seconds;
    double flops; /* FLOPs of products, convolutions, attention; 0: not counted */
} choir_trace_line;

/** Makes a trace that keeps the times of up to `events` kernels for choir_trace_write (0: a
 * million); the profile counts all kernels. */
choir_trace *choir_trace_new(size_t events);
/** Stops the trace and frees it. NULL is fine. */
void choir_trace_free(choir_trace *trace);

/** Records the kernels that a device runs from now on (choir_trace_device), or the collectives
 * of a group (choir_trace_group). */
void choir_trace_device(choir_trace *trace, choir_device *device);
void choir_trace_group(choir_trace *trace, choir_group *group);

/** Stops recording; the recorded times stay. */
void choir_trace_stop(choir_trace *trace);

/** Returns the current time of the trace's clock, for choir_trace_span. */
double choir_trace_now(void);
/** Records a span of the host's time, between two values of choir_trace_now(). */
void choir_trace_span(choir_trace *trace, const char *name, double start, double end);

/** Waits for the traced devices and groups and returns the profile's lines, the most expensive
 * first. The lines are valid until the next call on this trace. FLOPs: a product of (M, K) by
 * (K, N) counts 2 M N K, a convolution as the equivalent product, attention 4 D per visible
 * pair of query and key, and 8 D backward, a recurrent layer the products of its steps. */
const choir_trace_line *choir_trace_profile(choir_trace *trace, int *count);

/** Prints the profile as a table. matmul_rate is in FLOP/s (choir_trace_matmul_rate); 0:
 * unknown. */
void choir_trace_print(choir_trace *trace, FILE *out, double matmul_rate);

/** Measures the device's rate in a product of 1024 x 1024 x 1024 f32, in FLOP/s. */
double choir_trace_matmul_rate(choir_device *device);

/** Writes the events in Chrome's trace format as process `rank`. Errors: io. */
CHOIR_CHECKED choir_status choir_trace_write(choir_trace *trace, const char *path, int rank);

#ifdef __cplusplus
}
#endif
#endif
