/* Kernels that are launched on tensors without a tape entry. */
#ifndef CHOIR_LAUNCH_INTERNAL_H
#define CHOIR_LAUNCH_INTERNAL_H

#include "tensor/tensor.h"

/* Computes y = x, in any layout and any dtype. */
void choir__launch_copy(choir_tensor *y, const choir_tensor *x);
/* Copies x to y on another device. The copy is ordered after x's work and before x's memory is
 * reused. */
void choir__copy_across(choir_tensor *y, choir_tensor *x);
/* Returns a copy of x on another device, in x's memory order, without history. */
choir_tensor *choir__copied_to(choir_scope *scope, choir_tensor *x, choir_device *device);
void choir__launch_fill(choir_tensor *y, double value);
/* Returns () with a number of x's dtype, on x's device. */
choir_tensor *choir__number_like(choir_scope *scope, const choir_tensor *x, double value);
/* Copies host memory into device memory, in queue order; the caller may free data at once. */
void choir__launch_upload(choir_device *device, void *y, const void *data, size_t bytes);
/* Copies device memory into device memory. */
void choir__launch_bytes(choir_device *device, void *y, const void *x, size_t bytes);
/* Returns t's strides for `shape`: t is repeated along dimensions that it lacks or in which its
 * size is 1. */
choir__strided choir__stretched(const choir_tensor *t, choir_shape shape);
/* Computes y = a op b; a and b may broadcast to y's shape. */
void choir__launch_binary(
    choir_tensor *y, choir__binary_op op, const choir_tensor *a, const choir_tensor *b);
/* Computes y = a + b. On a device whose kernels all take 16 bits, b may have them beside an f32
 * a: then all are contiguous, and y is not b. */
void choir__launch_add(choir_tensor *y, const choir_tensor *a, const choir_tensor *b);
/* Returns x as row-major memory of its dtype: x itself or a copy in scope. */
choir_tensor *choir__dense_rows(choir_scope *scope, choir_tensor *x);
/* Returns the elements from row to row of a product's result: its columns, or a few more where
 * products are faster so (choir_device.row_bytes). Short rows are not worth it. */
int64_t choir__product_row(const choir_device *device, choir_dtype dtype, int64_t cols);
/* Returns true if x is row-major, or its rows are choir__product_row elements apart. */
bool choir__has_product_rows(const choir_tensor *x);
/* Returns x if it has such rows, else a row-major copy in scope. */
choir_tensor *choir__product_rows(choir_scope *scope, choir_tensor *x);
/* Sums x over the dimensions in which `shape` is 1 or missing. */
choir_tensor *choir__sum_to(choir_scope *scope, choir_tensor *x, choir_shape shape);

#endif
