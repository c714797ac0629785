/* Resampling of 8-bit pixels to a sample: one pass over rows, with weights for each axis.
 *
 *     out[y][x][c] = add[c]
 *         + mul[c] * sum_s sum_t wy[y][s] wx[x][t] in[fy[y] + s][fx[x] + t][c]
 *
 * A flip is an axis with its entries in reverse order; a crop has weights of 1; black beyond an
 * image's edge has weights of 0. The function is compiled for each instruction set, as the
 * kernels are, and gives the same bits on all. */
#ifndef CHOIR_RESAMPLE_H
#define CHOIR_RESAMPLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct choir__axis {
    int count;     /* outputs */
    int taps;      /* weights per output */
    int *first;    /* (count) position of tap 0, in pixels of the input */
    float *weight; /* (count, taps) */
} choir__axis;

typedef struct choir__resample {
    const uint8_t *in; /* rows of RGB; CHOIR__PIXEL_SLACK bytes past the end may be read */
    int64_t stride;    /* bytes */
    int width;         /* used pixels of a row */
    choir__axis y, x;
    float mul[4], add[4]; /* per channel; the fourth is ignored */
    float *row;           /* scratch: 3 * width + CHOIR__ROW_SLACK */
    float *out;           /* (y.count, x.count, 3) */
} choir__resample;

enum { CHOIR__ROW_SLACK = 32 };

typedef void choir__resample_fn(const choir__resample *args);

/* Returns the function for choir_cpu_isa(). */
choir__resample_fn *choir__resample_find(void);

#endif
