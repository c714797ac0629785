/* From 8-bit pixels to a sample: one pass over rows, by weights for each axis.
 *
 *     out[y][x][c] = mul[c] * sum_s sum_t wy[y][s] wx[x][t] in[fy[y] + s][fx[x] + t][c] +
 * add[c]
 *
 * A flip is an axis whose entries stand in reverse, a crop one with weights of 1, and black
 * beyond an image's edge one with weights of 0. Compiled for each instruction set, as the
 * kernels are, with the same bits. */
#ifndef CHOIR_RESAMPLE_H
#define CHOIR_RESAMPLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct choir__axis {
    int count;     /* outputs */
    int taps;      /* weights an output */
    int *first;    /* (count) where tap 0 lies, in pixels of the input */
    float *weight; /* (count, taps) */
} choir__axis;

typedef struct choir__resample {
    const uint8_t *in; /* rows of RGB; up to CHOIR__PIXEL_SLACK bytes behind may be read */
    int64_t stride;    /* bytes */
    int width;         /* pixels of a row that are used */
    choir__axis y, x;
    float mul[4], add[4]; /* of the channels; the fourth is ignored */
    float *row;           /* scratch: 3 * width + CHOIR__ROW_SLACK */
    float *out;           /* (y.count, x.count, 3) */
} choir__resample;

enum { CHOIR__ROW_SLACK = 32 };

typedef void choir__resample_fn(const choir__resample *args);

/* The one for choir_cpu_isa(). */
choir__resample_fn *choir__resample_find(void);

#endif
