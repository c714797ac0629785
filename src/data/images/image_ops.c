/* The table of all changes of an image. Those of colours are in isa/colours.c, those that move
 * pixels in image_warp.c. */
#include "data/images/image_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>

static void identity(choir__picture *p, double amount)
{
    (void)p, (void)amount;
}

extern const choir__colours choir__colours_baseline, choir__colours_avx2, choir__colours_avx512;

const choir__colours *choir__colours_find(void)
{
#if defined(__x86_64__)
    if (!strcmp(choir_cpu_isa(), "avx512"))
        return &choir__colours_avx512;
    if (!strcmp(choir_cpu_isa(), "avx2"))
        return &choir__colours_avx2;
#endif
    return &choir__colours_baseline;
}

static const struct {
    void (*change)(choir__picture *p, double amount); /* NULL: in choir__colours */
    double low, high;                                 /* range of amounts */
    double first, last;       /* RandAugment's at the lowest and the highest magnitude */
    double plus;              /* added to them: of factors, the one that changes nothing */
    bool by_width, by_height; /* they are shares of these */
    bool is_signed;
} ops[CHOIR_IMAGE_OPS] = {
    [CHOIR_IMAGE_IDENTITY] = {identity, -1e9, 1e9, 0, 0, 0},
    [CHOIR_IMAGE_SHEAR_X] = {choir__picture_shear_x, -1e3, 1e3, 0, 0.3, .is_signed = true},
    [CHOIR_IMAGE_SHEAR_Y] = {choir__picture_shear_y, -1e3, 1e3, 0, 0.3, .is_signed = true},
    [CHOIR_IMAGE_TRANSLATE_X] = {choir__picture_translate_x, -1e6, 1e6, 0, 150.0 / 331.0,
        .by_width = true, .is_signed = true},
    [CHOIR_IMAGE_TRANSLATE_Y] = {choir__picture_translate_y, -1e6, 1e6, 0, 150.0 / 331.0,
        .by_height = true, .is_signed = true},
    [CHOIR_IMAGE_ROTATE] = {choir__picture_rotate, -360, 360, 0, 30, .is_signed = true},
    [CHOIR_IMAGE_BRIGHTNESS] = {NULL, 0, 1e3, 0, 0.9, 1, .is_signed = true},
    [CHOIR_IMAGE_SATURATION] = {NULL, 0, 1e3, 0, 0.9, 1, .is_signed = true},
    [CHOIR_IMAGE_CONTRAST] = {NULL, 0, 1e3, 0, 0.9, 1, .is_signed = true},
    [CHOIR_IMAGE_SHARPNESS] = {NULL, 0, 1e3, 0, 0.9, 1, .is_signed = true},
    [CHOIR_IMAGE_POSTERIZE] = {NULL, 0, 8, 8, 4},
    [CHOIR_IMAGE_SOLARIZE] = {NULL, 0, 1, 1, 0},
    [CHOIR_IMAGE_AUTOCONTRAST] = {NULL, -1e9, 1e9, 0, 0},
    [CHOIR_IMAGE_EQUALIZE] = {NULL, -1e9, 1e9, 0, 0},
    [CHOIR_IMAGE_HUE] = {NULL, -0.5, 0.5, 0, 0.5, .is_signed = true},
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

double choir_randaugment_amount(
    choir_image_op op, int magnitude, int bins, int64_t height, int64_t width)
{
    if ((unsigned)op >= CHOIR_IMAGE_OPS || bins < 2 || magnitude < 0 || magnitude >= bins)
        return 0;
    double share = (double)magnitude / (bins - 1);
    double amount = ops[op].first + (ops[op].last - ops[op].first) * share;
    if (op == CHOIR_IMAGE_POSTERIZE)
        return 8 - rint(share * 4);
    amount *= ops[op].by_width ? (double)width : ops[op].by_height ? (double)height : 1;
    return amount + ops[op].plus;
}

choir_status choir_image_change(
    float *x, int64_t channels, int64_t height, int64_t width, choir_image_op op, double amount)
{
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
