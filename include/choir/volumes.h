/* Signals, images and volumes: convolutions along one and three dimensions, and other sizes.
 * Each computes the same as PyTorch's function of the same name. choir_conv2d is in ops.h.
 *
 * Tensors are logically (N, C, ...); results have their channels last in memory, as with
 * choir_conv2d. Gradient: all floating operands. Errors: shape, dtype, device, scope, argument.
 * Collective: none.
 *
 * Threads: the thread of the operands' scope. */
#ifndef CHOIR_VOLUMES_H
#define CHOIR_VOLUMES_H

#include <choir/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Convolves x (N, C, L) with weight (O, C/groups, K) and adds bias (O) or NULL -> (N, O, OL).
 * Uses stride, padding, dilation and groups of opts. Computed as a choir_conv2d on images of
 * height 1. */
choir_tensor *choir_conv1d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv_opts opts);

/** Options of a convolution of volumes: along depth, height and width. */
typedef struct choir_conv3d_opts {
    int stride[3], padding[3], dilation[3];
    int groups;
} choir_conv3d_opts;

choir_conv3d_opts choir_conv3d_defaults(
    void); /* strides 1, paddings 0, dilations 1, groups 1 */

/** Convolves x (N, C, D, H, W) with weight (O, C/groups, KD, KH, KW) and adds bias (O) or NULL
 * -> (N, O, OD, OH, OW). Computed as one choir_conv2d, with the KD slices that a slice of the
 * result reads as additional channels, which take KD/stride times the memory of x until
 * backward. */
choir_tensor *choir_conv3d(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir_conv3d_opts opts);

typedef enum choir_interpolation {
    CHOIR_NEAREST, /* the entry at floor(i in / out), in f32 as PyTorch computes it */
    CHOIR_LINEAR,  /* between two entries: linear, bilinear or trilinear */
    CHOIR_CUBIC    /* among four entries (Keys, 1981; a = -0.75): bicubic */
} choir_interpolation;

/** Stretches or shrinks each dimension of x (N, C, ...) after the second to its number in
 * `sizes`, which has `count` numbers. From `in` entries to `out`, the place of entry i among
 * the old ones is (i + 1/2) in / out - 1/2; with align_corners, which CHOIR_NEAREST does not
 * take, it is i (in - 1) / (out - 1). Entries beyond the edge equal the edge's. Shrinking does
 * not smooth (PyTorch's antialias). */
choir_tensor *choir_interpolate(choir_tensor *x, const int64_t *sizes, int count,
    choir_interpolation how, bool align_corners);

/** Normalises each channel of each sample by itself: choir_group_norm with as many groups as
 * channels. */
choir_tensor *choir_instance_norm(
    choir_tensor *x, choir_tensor *gamma, choir_tensor *beta, float eps);

/** Makes blocks of pixels of channels: (N, C r^2, H, W) -> (N, C, H r, W r) (Shi et al., 2016);
 * choir_pixel_unshuffle takes them apart again. */
choir_tensor *choir_pixel_shuffle(choir_tensor *x, int64_t r);
choir_tensor *choir_pixel_unshuffle(choir_tensor *x, int64_t r);

/** Returns the windows that a convolution of x (N, C, H, W) reads, as columns: (N, C KH KW,
 * windows). Uses stride, padding and dilation of opts; choir_fold adds such columns up to an
 * image (height, width). */
choir_tensor *choir_unfold(
    choir_tensor *x, int64_t kernel_h, int64_t kernel_w, choir_conv_opts opts);
choir_tensor *choir_fold(choir_tensor *columns, int64_t height, int64_t width, int64_t kernel_h,
    int64_t kernel_w, choir_conv_opts opts);

/**
 * Reads an image at places between its pixels.
 *
 * @param x      (N, C, H, W)
 * @param grid   (N, OH, OW, 2) x and y of each place, of x's dtype: -1 and 1 are the image's
 *               edges, or, with align_corners, the centres of its outermost pixels
 * @param how    CHOIR_LINEAR (bilinear), or CHOIR_NEAREST
 * @param border true: places outside have the value at the edge; false: 0
 * @return       (N, C, OH, OW)
 *
 * Gradient: x; grid, with CHOIR_LINEAR. 16-bit operands are computed in f32.
 */
choir_tensor *choir_grid_sample(choir_tensor *x, choir_tensor *grid, choir_interpolation how,
    bool border, bool align_corners);

#ifdef __cplusplus
}
#endif
#endif
