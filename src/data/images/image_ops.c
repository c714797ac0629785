/* The table of all changes of an image. Those of colours are in isa/colours.c, those that move
 * pixels come first. */
#include "base/math/functions.h"
#include "data/images/image_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>

#include "base/floats.h"

static void identity(choir__picture *p, double amount)
{
    (void)p, (void)amount;
}

/* --- moving pixels ---
 *
 * Shearing, moving and turning an image: torchvision's affine and rotate with the nearest
 * pixel.
 *
 * Six numbers map a place of the result to one of the image, both seen from the image's center:
 *
 *     x' = m0 x + m1 y + m2        y' = m3 x + m4 y + m5
 *
 * Places outside of the image are black. */

/* The inverse of turning by `angle` and shearing (radians) around a center, and then moving:
 * torchvision's _get_inverse_affine_matrix without scaling. Angles are clockwise. */
static void warp_by(choir__picture *p, double angle, double shear_x, double shear_y,
    double move_x, double move_y, double center_x, double center_y)
{
    double cosine = choir__cos(shear_y), tangent = choir__tan(shear_x);
    double a = choir__cos(angle - shear_y) / cosine, b = -(a * tangent + choir__sin(angle));
    double c = choir__sin(angle - shear_y) / cosine, d = choir__cos(angle) - c * tangent;
    double x = center_x + move_x, y = center_y + move_y;
    p->colours->warp(
        p, (double[6]){d, -b, center_x - d * x + b * y, -c, a, center_y + c * x - a * y});
}

static void shear_x(choir__picture *p, double amount)
{
    warp_by(
        p, 0, choir__atan(amount), 0, 0, 0, -0.5 * (double)p->width, -0.5 * (double)p->height);
}

static void shear_y(choir__picture *p, double amount)
{
    warp_by(
        p, 0, 0, choir__atan(amount), 0, 0, -0.5 * (double)p->width, -0.5 * (double)p->height);
}

static void translate_x(choir__picture *p, double amount)
{
    warp_by(p, 0, 0, 0, trunc(amount), 0, 0, 0);
}

static void translate_y(choir__picture *p, double amount)
{
    warp_by(p, 0, 0, 0, 0, trunc(amount), 0, 0);
}

static void rotate(choir__picture *p, double amount)
{
    if (fmod(amount, 360) != 0)
        warp_by(p, -amount * M_PI / 180, 0, 0, 0, 0, 0, 0);
}

/* --- the table --- */

extern const choir__colours choir__colours_baseline, choir__colours_avx2, choir__colours_avx512;

const choir__colours *choir__colours_find(void)
{
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX512)
    if (!strcmp(choir_cpu_isa(), "avx512"))
        return &choir__colours_avx512;
#endif
#if defined(__x86_64__) && !defined(CHOIR_WITHOUT_AVX2)
    if (!strcmp(choir_cpu_isa(), "avx2"))
        return &choir__colours_avx2;
#endif
#ifndef CHOIR_WITHOUT_BASELINE
    return &choir__colours_baseline;
#else
    return NULL; /* a processor that lacks the only instruction set has been refused */
#endif
}

static const struct {
    void (*change)(choir__picture *p, double amount); /* NULL: in choir__colours */
    double low, high;                                 /* range of amounts */
    double first, last;       /* RandAugment's at the lowest and the highest magnitude */
    double plus;              /* added to them: of factors, the one that changes nothing */
    bool by_width, by_height; /* the magnitudes are shares of the width or height */
    bool is_signed;
} ops[CHOIR_IMAGE_OPS] = {
    [CHOIR_IMAGE_IDENTITY] = {identity, .low = -1e9, .high = 1e9},
    [CHOIR_IMAGE_SHEAR_X] = {shear_x, .low = -1e3, .high = 1e3, .last = 0.3, .is_signed = true},
    [CHOIR_IMAGE_SHEAR_Y] = {shear_y, .low = -1e3, .high = 1e3, .last = 0.3, .is_signed = true},
    [CHOIR_IMAGE_TRANSLATE_X] = {translate_x, .low = -1e6, .high = 1e6, .last = 150.0 / 331.0,
        .by_width = true, .is_signed = true},
    [CHOIR_IMAGE_TRANSLATE_Y] = {translate_y, .low = -1e6, .high = 1e6, .last = 150.0 / 331.0,
        .by_height = true, .is_signed = true},
    [CHOIR_IMAGE_ROTATE] = {rotate, .low = -360, .high = 360, .last = 30, .is_signed = true},
    [CHOIR_IMAGE_BRIGHTNESS] = {.high = 1e3, .last = 0.9, .plus = 1, .is_signed = true},
    [CHOIR_IMAGE_SATURATION] = {.high = 1e3, .last = 0.9, .plus = 1, .is_signed = true},
    [CHOIR_IMAGE_CONTRAST] = {.high = 1e3, .last = 0.9, .plus = 1, .is_signed = true},
    [CHOIR_IMAGE_SHARPNESS] = {.high = 1e3, .last = 0.9, .plus = 1, .is_signed = true},
    [CHOIR_IMAGE_POSTERIZE] = {.high = 8, .first = 8, .last = 4},
    [CHOIR_IMAGE_SOLARIZE] = {.high = 1, .first = 1},
    [CHOIR_IMAGE_AUTOCONTRAST] = {.low = -1e9, .high = 1e9},
    [CHOIR_IMAGE_EQUALIZE] = {.low = -1e9, .high = 1e9},
    [CHOIR_IMAGE_HUE] = {.low = -0.5, .high = 0.5, .last = 0.5, .is_signed = true},
};

void choir__picture_change(choir__picture *p, choir_image_op op, double amount)
{
    if (ops[op].change)
        ops[op].change(p, amount);
    else
        p->colours->change[op](p, amount);
}

double choir__image_op_opposite(choir_image_op op, double amount)
{
    return ops[op].is_signed ? 2 * ops[op].plus - amount : amount;
}

static CHOIR__APART double amount_of(
    choir_image_op op, int magnitude, int bins, int64_t height, int64_t width)
{
    double share = (double)magnitude / (bins - 1);
    double amount = ops[op].first + (ops[op].last - ops[op].first) * share;
    if (op == CHOIR_IMAGE_POSTERIZE)
        return 8 - rint(share * 4);
    amount *= ops[op].by_width ? (double)width : ops[op].by_height ? (double)height : 1;
    return amount + ops[op].plus;
}

double choir_randaugment_amount(
    choir_image_op op, int magnitude, int bins, int64_t height, int64_t width)
{
    CHOIR__DEFAULT_FLOATS;
    if ((unsigned)op >= CHOIR_IMAGE_OPS || bins < 2 || magnitude < 0 || magnitude >= bins)
        return 0;
    return amount_of(op, magnitude, bins, height, width);
}

choir_status choir_image_change(
    float *x, int64_t channels, int64_t height, int64_t width, choir_image_op op, double amount)
{
    CHOIR__DEFAULT_FLOATS;
    if (!x)
        return choir__missing(__func__, "x");
    if (height < 1 || width < 1 || height > 1 << 15 || width > 1 << 15 ||
        (channels != 1 && channels != 3))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "an image: expected 1 to 32768 rows and columns, and 1 or 3 channels, got %lld x %lld "
            "x %lld",
            (long long)height, (long long)width, (long long)channels);
    if ((unsigned)op >= CHOIR_IMAGE_OPS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "unknown change %d of an image: choose one of enum choir_image_op", (int)op);
    if (!(amount >= ops[op].low && amount <= ops[op].high))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "change %d of an image: expected an amount from %g to %g, got %g", (int)op,
            ops[op].low, ops[op].high, amount);
    size_t bytes = (size_t)(height * width * channels) * sizeof *x;
    float *spare = malloc(bytes);
    if (!spare)
        return choir__error(CHOIR_ERR_MEMORY, "no host memory for %zu bytes of pixels", bytes);
    choir__picture p = {x, spare, height, width, (int)channels, choir__colours_find()};
    choir__picture_change(&p, op, amount);
    if (p.x != x)
        memcpy(x, p.x, bytes);
    free(spare);
    return CHOIR_OK;
}
