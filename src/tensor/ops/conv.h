/* Inside the image ops: sizes and new images. */
#ifndef CHOIR_CONV_H
#define CHOIR_CONV_H

#include "tensor/tensor.h"

/* Returns the number of positions of a window of size `kernel`; 0: it does not fit. */
int64_t choir__conv_out(
    int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation);

/* Makes a tensor (N, C, H, W) with channels last in memory, on like's device. */
choir_tensor *choir__new_image(choir_scope *scope, const choir_tensor *like, choir_dtype dtype,
    int64_t n, int64_t c, int64_t h, int64_t w);

#endif
