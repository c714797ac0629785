/* Changes of one image: the table behind choir_image_change (choir/augment.h). */
#ifndef CHOIR_DATA_IMAGE_OPS_H
#define CHOIR_DATA_IMAGE_OPS_H

#include <choir/augment.h>
#include "base/base.h"

struct choir__colours;

/* An image, and room for another one of its size. */
typedef struct choir__picture {
    float *x; /* (channels, height, width), values in [0, 1] */
    float *spare;
    int64_t height, width;
    int channels; /* 1 or 3 */
    const struct choir__colours *colours;
} choir__picture;

/* Loops over pixels, compiled for each instruction set; all give the same bits. */
typedef struct choir__colours {
    /* Convert between planes and x (height, width, channels) f32, which becomes mul x + add. */
    void (*into_planes)(
        choir__picture *p, const float *x, const float mul[3], const float add[3]);
    void (*from_planes)(
        const choir__picture *p, float *x, const float mul[3], const float add[3]);
    /* Moves pixels: the pixel at (x, y) comes from (m0 x + m1 y + m2, m3 x + m4 y + m5). */
    void (*warp)(choir__picture *p, const double m[6]);
    void (*change[CHOIR_IMAGE_OPS])(choir__picture *p, double amount); /* NULL: moves */
} choir__colours;

/* Returns the table for the instruction set of choir_cpu_isa(). */
const choir__colours *choir__colours_find(void);

/* Changes the image; x and spare may have been exchanged afterwards. The op and the amount have
 * been checked. */
void choir__picture_change(choir__picture *picture, choir_image_op op, double amount);

/* Returns the amount with the other sign, for ops whose sign RandAugment draws; of factors, 0.9
 * is the opposite of 1.1. */
double choir__image_op_opposite(choir_image_op op, double amount);

#endif
