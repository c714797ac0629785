/* Kernels on 16-bit operands that go through f32, and when. */
#ifndef CHOIR_CPU_HALF_H
#define CHOIR_CPU_HALF_H

#include "device/cpu/context.h"

/* Whether such operands are multiplied faster than f32 here, by oneDNN. */
bool choir__half_products(choir_dtype dtype);

/* The kernels on 16-bit operands. f32: the table's copy, and its products of f32 operands. */
void choir__half_matmul(const choir__kernels *f32, const choir__k_matmul *k);
void choir__half_conv(const choir__kernels *f32, const choir__k_conv *k);
void choir__half_conv_backward_input(
    const choir__kernels *f32, const choir__k_conv_backward_input *k);
void choir__half_conv_backward_weight(
    const choir__kernels *f32, const choir__k_conv_backward_weight *k);

#endif
