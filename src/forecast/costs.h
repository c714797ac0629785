/* The cost of a kernel on a device: from a table that was measured on this machine, or by the
 * data sheet.
 *
 * By the data sheet a kernel takes the longest of its FLOPs over the rate of its type, its
 * bytes over the rate of the memory, and the least time of a launch.
 *
 * By a table it takes what kernels of the same name and type took at similar sizes. A table has
 * samples (size, seconds); size is FLOPs for products, convolutions and attention, else bytes.
 * A row of a table is one name, type and form; a form is what changes a rate by itself (a
 * product with few rows, rows that do not fit a cache). Between two samples the logarithm of
 * seconds is linear in the logarithm of the size; beyond the last one seconds are proportional
 * to the size. */
#ifndef CHOIR_FORECAST_COSTS_H
#define CHOIR_FORECAST_COSTS_H

#include "forecast/cluster.h"
#include "forecast/step.h"

typedef struct choir__cost_sample {
    double size, seconds;
} choir__cost_sample;

typedef struct choir__cost_row {
    int kernel; /* number in CHOIR__KERNEL_LIST */
    choir_dtype dtype;
    int form;                    /* choir__cost_form */
    choir__cost_sample *samples; /* (count) sizes rise */
    int count;
    double spread; /* relative standard deviation of the measurements */
} choir__cost_row;

/* The times of an all-reduce within this machine: seconds = alpha + bytes / beta. */
typedef struct choir__cost_link {
    int ranks;
    double alpha_s, beta_bytes_s;
} choir__cost_link;

enum { CHOIR__COST_KEY = 256, CHOIR__COST_LINKS = 8 };

typedef struct choir__costs {
    char key[CHOIR__COST_KEY]; /* machine, build and instruction set */
    choir__cost_row *rows;
    int row_count;
    choir__cost_link links[CHOIR__COST_LINKS];
    int link_count;
} choir__costs;

/* Tests call it, too. Returns the form of an entry: how many bits the least of m, n and k has,
 * at most 8, for products; 0 for other kernels. */
int choir__cost_form(int kernel, const int64_t dims[CHOIR__STEP_DIMS]);

/* Returns the seconds of a kernel's entry. costs NULL, or without the kernel: by the data
 * sheet; *measured says so.
 * measured and spread may be NULL. */
double choir__kernel_seconds(const choir__device_model *device, const choir__costs *costs,
    const choir__step_entry *entry, bool *measured, double *spread);

/* Tests call them, too. choir__costs_add adds a sample, in the order of sizes. */
void choir__costs_add(choir__costs *costs, int kernel, choir_dtype dtype, int form, double size,
    double seconds, double spread);
void choir__costs_free(choir__costs *costs);

#endif
