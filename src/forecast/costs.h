/* The cost of a kernel on a device: from a table that was measured on this machine, or by the
 * data sheet.
 *
 * By the data sheet a kernel takes the longest of its FLOPs over the rate of its type, its
 * bytes over the rate of the memory, and the least time of a launch.
 *
 * By a table a call takes what an equal call took, if the table has one, and else what calls of
 * the same kernel, type and form took at similar sizes. The size is FLOPs for products,
 * convolutions and attention, else bytes; a form is what changes a rate by itself (a product
 * with few rows). Between two samples the logarithm of seconds is linear in the logarithm of
 * the size; beyond the last one seconds are proportional to the size. */
#ifndef CHOIR_FORECAST_COSTS_H
#define CHOIR_FORECAST_COSTS_H

#include "forecast/cluster.h"
#include "forecast/step.h"

/* A call of a kernel, as in choir__step_entry. */
typedef struct choir__cost_call {
    int kernel;
    choir_dtype dtype;
    double flops, bytes;
    int64_t dims[CHOIR__STEP_DIMS];
} choir__cost_call;

typedef struct choir__cost_sample {
    choir__cost_call call;
    double size, seconds;
    double spread; /* relative standard deviation of the measurements */
} choir__cost_sample;

/* The samples of one kernel, type and form; sizes rise. */
typedef struct choir__cost_row {
    int kernel, form;
    choir_dtype dtype;
    choir__cost_sample *samples;
    int count;
} choir__cost_row;

enum { CHOIR__COST_KEY = 512 };

typedef struct choir__costs {
    char key[CHOIR__COST_KEY]; /* machine, build and instruction set */
    choir__cost_row *rows;
    int row_count;
    double task_s; /* a queue's time between two tasks */
    double step_s; /* a step's time apart from its tasks */
    /* Messages between ranks of this machine; beta 0: not measured. */
    double alpha_s, beta_bytes_s;
} choir__costs;

/* Returns the seconds of a kernel's entry. costs NULL, or without the kernel: by the data
 * sheet; *measured says so. measured and spread may be NULL. */
double choir__kernel_seconds(const choir__device_model *device, const choir__costs *costs,
    const choir__step_entry *entry, bool *measured, double *spread);

/* Returns the bytes that an optimizer's kernel reads and writes for a number of f32 elements,
 * which its arguments state in device memory alone; 0 for other kernels. */
double choir__optimizer_bytes(int kernel, double elements);

/* Adds a sample; when all are there, choir__costs_sort orders them by size. */
void choir__costs_append(
    choir__costs *costs, const choir__cost_call *call, double seconds, double spread);
void choir__costs_sort(choir__costs *costs);
void choir__costs_free(choir__costs *costs);

/* --- costs_file.c: a table is kept as JSON --- */

/* Writes the key of a kind of device, such as "cpu", on this machine. Error: device. */
choir_status choir__costs_key(const char *kind, char key[CHOIR__COST_KEY]);
/* Returns the path at which this user's table of a kind is kept: CHOIR_COSTS, or a file of
 * XDG_CACHE_HOME or of ~/.cache. The caller frees it. */
char *choir__costs_path(const char *kind);
/* Read and write a table. A table with another key than `key` is refused; NULL: none is.
 * Errors: I/O, argument. */
choir_status choir__costs_read(const char *path, const char *key, choir__costs *costs);
choir_status choir__costs_write(const char *path, const choir__costs *costs);

#endif
