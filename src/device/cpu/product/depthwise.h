/* Convolutions of one channel a group, "depthwise": vectors of channels, in place of a product
 * a group.
 *
 *     y[window][c] = windows[window][place][c] w[place][c], summed over places
 *     gw[place][c] = gy[window][c] windows[window][place][c], summed over windows
 *
 * An element is the chain that the group's product computes, so it has the same bits. Places
 * outside the image are zeros, which are multiplied, too: a weight may be infinite. Channels
 * lie side by side in memory, so vectors of them are loaded as they are. Where the
 * last vector would not be whole, it overlaps the one before, which computes some channels
 * twice. */
#ifndef CHOIR_PRODUCT_DEPTHWISE_H
#define CHOIR_PRODUCT_DEPTHWISE_H

#include "device/cpu/product/fma.h"
#include "device/cpu/product/half_vectors.h"
#include "device/cpu/product/windows.h"

/* Windows of x, or of gy for x's gradient, with all channels of a pixel. Strides are in bytes.
 */
typedef struct choir__depthwise {
    choir__windows windows;
    int64_t images;
    const float *w;            /* (places, channels) */
    const float *bias;         /* (channels), or NULL */
    void *y;                   /* the first channel of window 0 */
    int64_t image, row, pixel; /* from one image, row, column of windows to the next in y */
    choir_dtype dtype;
} choir__depthwise;

void KERNEL(depthwise)(const choir__depthwise *d);

/* gw (channels, places) f32, of x's windows and gy (windows, channels). */
void KERNEL(depthwise_weight)(const choir__depthwise *d, const void *gy, float *gw);

/* Multiply-adds of a core from which on a division gains. */
enum { DEPTHWISE_LEAST = 128 * 1024 };

/* Columns of windows all of whose places lie inside a row of the image. */
typedef struct inner {
    int64_t from, to;
} inner;

INLINE bool is_inside(const choir__windows *v, int64_t column, int64_t place)
{
    const int64_t at = v->first_w + v->step_w * column + v->delta_w * place;
    return at >= 0 && at < v->w;
}

INLINE inner inner_columns(const choir__windows *v)
{
    inner n = {0, v->cols};
    while (n.from < n.to && !(is_inside(v, n.from, 0) && is_inside(v, n.from, v->count_w - 1)))
        n.from++;
    while (
        n.to > n.from && !(is_inside(v, n.to - 1, 0) && is_inside(v, n.to - 1, v->count_w - 1)))
        n.to--;
    return n;
}

/* A vector of the first `left` elements at p, or of W if there are as many. */
INLINE vec channels_at(const char *p, int64_t left, const choir_dtype dtype)
{
    if (dtype == CHOIR_F32)
        return v_get((const float *)p, left);
    uint16_t few[W] = {0};
    if (left < W) {
        memcpy(few, p, (size_t)left * sizeof *few);
        p = (const char *)few;
    }
    return widened((const uint16_t *)p, dtype == CHOIR_BF16);
}

/* Where place (i, 0) of a row of windows is read, in bytes from one window and from one place
 * to the next. Rows outside the image are zeros at every window and place. */
typedef struct line {
    const char *at;
    int64_t window, place;
} line;

/* As many zeros as a place has channels that are read at a time. */
static const char no_pixel[8 * W];

INLINE line line_of(
    const choir__windows *v, int64_t image, int64_t row, int64_t i, int64_t channel)
{
    const int64_t h = v->first_h + v->step_h * row + v->delta_h * i, size = (int64_t)v->size;
    if (h < 0 || h >= v->h)
        return (line){no_pixel, 0, 0};
    return (line){
        (const char *)v->images +
            (((image * v->h + h) * v->w + v->first_w) * v->pixel + v->first + channel) * size,
        v->step_w * v->pixel * size, v->delta_w * v->pixel * size};
}

/* Returns place j of a window at the image's edge. */
INLINE const char *place_of(const choir__windows *v, const line *l, int64_t column, int64_t j)
{
    return is_inside(v, column, j) ? l->at + column * l->window + j * l->place : no_pixel;
}

#endif
