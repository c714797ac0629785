/* Shearing, moving and turning an image: torchvision's affine and rotate with the nearest
 * pixel.
 *
 * Six numbers map a place of the result to one of the image, both seen from the image's center:
 *
 *     x' = m0 x + m1 y + m2        y' = m3 x + m4 y + m5
 *
 * Places outside of the image are black. */
#include <math.h>

#include "data/images/image_ops.h"

/* The inverse of turning by `angle` and shearing (radians) around a center, and then moving:
 * torchvision's _get_inverse_affine_matrix without scaling. Angles are clockwise. */
static void warp_by(choir__picture *p, double angle, double shear_x, double shear_y,
    double move_x, double move_y, double center_x, double center_y)
{
    double a = cos(angle - shear_y) / cos(shear_y), b = -(a * tan(shear_x) + sin(angle));
    double c = sin(angle - shear_y) / cos(shear_y), d = cos(angle) - c * tan(shear_x);
    double x = center_x + move_x, y = center_y + move_y;
    p->colours->warp(
        p, (double[6]){d, -b, center_x - d * x + b * y, -c, a, center_y + c * x - a * y});
}

void choir__picture_shear_x(choir__picture *p, double amount)
{
    warp_by(p, 0, atan(amount), 0, 0, 0, -0.5 * (double)p->width, -0.5 * (double)p->height);
}

void choir__picture_shear_y(choir__picture *p, double amount)
{
    warp_by(p, 0, 0, atan(amount), 0, 0, -0.5 * (double)p->width, -0.5 * (double)p->height);
}

void choir__picture_translate_x(choir__picture *p, double amount)
{
    warp_by(p, 0, 0, 0, trunc(amount), 0, 0, 0);
}

void choir__picture_translate_y(choir__picture *p, double amount)
{
    warp_by(p, 0, 0, 0, 0, trunc(amount), 0, 0);
}

void choir__picture_rotate(choir__picture *p, double amount)
{
    if (fmod(amount, 360) != 0)
        warp_by(p, -amount * M_PI / 180, 0, 0, 0, 0, 0, 0);
}
