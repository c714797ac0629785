/* Winograd's algorithm F(2x2, 3x3): convolutions of 3x3 windows with stride 1, by 16
 * multiplications where a window's four outputs beside each other take 36 (Lavin and Gray,
 * "Fast Algorithms for Convolutional Neural Networks", 2016, section 4.1).
 *
 *     Y  = A' [(G g G') * (B' d B)] A         d: a patch of 4x4 pixels, g: 3x3 weights,
 *     gg = G' [(A gY A') * (B' d B)] G        Y: 2x2 outputs, a quad; *: element by element
 *
 *     B' = 1  0 -1  0      G =  1    0    0     A' = 1  1  1  0
 *          0  1  1  0          1/2  1/2  1/2         0  1 -1 -1
 *          0 -1  1  0          1/2 -1/2  1/2
 *          0  1  0 -1           0    0    1
 *
 * Each of the 16 elements is a product, over channels for Y and over quads for gg. The input's
 * gradient is Y of gY with turned windows. Transforms are sums of f32 in the order in which
 * they are written below, rows of a patch first. Products obey the rule of the chain, with
 * chains a quarter as long, as one of their terms stands for four: K is cut into leaves of at
 * most QUARTER terms. So the bits are the same on every processor, and y's do not depend on the
 * number of images. The error against f64 is 0.7 to 1.2 times as large as with windows, in all
 * three passes; chains of the usual length would make it up to 2.3 times as large. */
#ifndef CHOIR_PRODUCT_WINOGRAD_H
#define CHOIR_PRODUCT_WINOGRAD_H

#include "device/cpu/product/conv_algorithm.h"
#include "device/cpu/product/half_vectors.h"

enum { QUARTER = CHOIR__CHAIN / 4, SIDE = 4, ELEMENTS = CHOIR__QUAD_ELEMENTS };

/* An element of all patches is followed by free cells, or 16 lines that are written together
 * would share few sets of the first cache. */
enum { FREE_CELLS = 16 };

/* A convolution of images by 3x3 windows, and its quads. */
typedef struct choir__quads {
    const void *x; /* (images, h, w, in) */
    int64_t images, h, w, in, pad_h, pad_w;
    int64_t rows, cols, out; /* y is (images, rows, cols, out) */
    choir_dtype dtype;
} choir__quads;

/* y = x convolved with weights (out, 3, 3, in), plus bias (out) unless it is NULL. turned: with
 * weights (in, 3, 3, out), whose windows are turned. */
void KERNEL(quads)(
    const choir__quads *q, const void *weights, const float *bias, void *y, bool turned);

/* gw (out, 3, 3, in) f32, of gy (images, rows, cols, out). */
void KERNEL(quads_weight)(const choir__quads *q, const void *gy, float *gw);

/* --- where quads are --- */

typedef struct quad {
    int64_t image, row, col; /* the place of its first output */
} quad;

INLINE int64_t quads_of(const choir__quads *q)
{
    return q->images * ((q->rows + 1) / 2) * ((q->cols + 1) / 2);
}

INLINE quad quad_at(const choir__quads *q, int64_t i)
{
    const int64_t rows = (q->rows + 1) / 2, cols = (q->cols + 1) / 2;
    return (quad){i / cols / rows, 2 * (i / cols % rows), 2 * (i % cols)};
}

/* Returns where a pixel of an image (h, w, channels) begins, or `zeros` outside of the image.
 */
INLINE const char *pixel_or(const char *zeros, const void *images, quad at, int64_t h,
    int64_t w, int64_t channels, const choir_dtype dtype)
{
    const int64_t size = dtype == CHOIR_F32 ? 4 : 2;
    if (at.row < 0 || at.row >= h || at.col < 0 || at.col >= w)
        return zeros;
    return (const char *)images + ((at.image * h + at.row) * w + at.col) * channels * size;
}

INLINE vec vector_at(const void *p, int64_t i, const choir_dtype dtype)
{
    if (dtype == CHOIR_F32)
        return v_load((const float *)p + i);
    return widened((const uint16_t *)p + i, dtype == CHOIR_BF16);
}

/* --- patches --- */

/* Transforms four numbers, `step` apart, as B' does. */
INLINE void mix_patch(vec *to, const vec *d, const int step)
{
    to[0] = d[0] - d[2 * step];
    to[step] = d[step] + d[2 * step];
    to[2 * step] = d[2 * step] - d[step];
    to[3 * step] = d[step] - d[3 * step];
}

/* to (16, quads, in) = B' d B of patches [first, first + count), with `element` cells from one
 * element to the next. zeros: a pixel outside of the images. */
INLINE void mix_patches(float *to, int64_t element, const choir__quads *q, int64_t first,
    int64_t count, const void *zeros, const choir_dtype dtype)
{
    for (int64_t i = 0; i < count; i++, to += q->in) {
        const quad at = quad_at(q, first + i);
        const char *pixel[ELEMENTS];
        for (int e = 0; e < ELEMENTS; e++)
            pixel[e] = pixel_or(zeros, q->x,
                (quad){at.image, at.row - q->pad_h + e / SIDE, at.col - q->pad_w + e % SIDE},
                q->h, q->w, q->in, dtype);
        for (int64_t c = 0; c < q->in; c += W) {
            vec d[ELEMENTS], half[ELEMENTS];
            for (int e = 0; e < ELEMENTS; e++)
                d[e] = vector_at(pixel[e], c, dtype);
            for (int j = 0; j < SIDE; j++)
                mix_patch(half + j, d + j, SIDE);
            for (int j = 0; j < SIDE; j++)
                mix_patch(d + j * SIDE, half + j * SIDE, 1);
            for (int e = 0; e < ELEMENTS; e++)
                v_store(to + e * element + c, d[e]);
        }
    }
}

/* K cut into leaves of at most QUARTER terms. */
INLINE choir__cut quarter_cut(int64_t k)
{
    return (choir__cut){.outer = 1, .leaves = (k + QUARTER - 1) / QUARTER};
}

#endif
