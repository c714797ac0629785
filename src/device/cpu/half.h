/* Kernels on 16-bit operands that compute by way of f32, and the rule when they are used. */
#ifndef CHOIR_CPU_HALF_H
#define CHOIR_CPU_HALF_H

#include "device/cpu/context.h"

/* Returns true if oneDNN multiplies operands of dtype faster than f32 on this machine. */
bool choir__half_products(choir_dtype dtype);

/* Writes oneDNN's version and whether it multiplies bf16, such as "oneDNN 2.6.3 with bf16"; "":
 * it is not built in. */
void choir__onednn_text(char *text, size_t bytes);

/* The kernels on 16-bit operands. f32: the table that provides the copy and the f32
 * products. */
void choir__half_matmul(const choir__kernels *f32, const choir__k_matmul *k);
void choir__half_conv(const choir__kernels *f32, const choir__k_conv *k);
void choir__half_conv_backward_input(
    const choir__kernels *f32, const choir__k_conv_backward_input *k);
void choir__half_conv_backward_weight(
    const choir__kernels *f32, const choir__k_conv_backward_weight *k);

#endif
