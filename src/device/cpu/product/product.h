/* Matrix products of our own, with the same bits on every processor.
 *
 * The rule of the chain: an element of A B is a chain of fused multiply-adds over k, in rising
 * order from +0. K longer than CHAIN is cut into chains of CHAIN, and a shorter last one, whose
 * sums are added in the fixed tree: a node of n leaves splits at the largest power of two below
 * n. Then the bias is added, then the old C if it accumulates, and the result is rounded once
 * to C's type. So bits depend on K alone, never on instructions, tiles, blocks or cores. */
#ifndef CHOIR_PRODUCT_H
#define CHOIR_PRODUCT_H

#include "device/cpu/isa/isa.h"

enum { CHOIR__CHAIN = 512 };

/* Multiplies operands of any floating dtype, on the cores of the current context. */
void KERNEL(own_matmul)(const choir__k_matmul *k);

/* Multiplies small f32 operands beside oneDNN (isa/small.c), and leaves others to the
 * reference. Its sums are not chains. */
void KERNEL(small_matmul)(const choir__k_matmul *k);

/* The two engines: operands of f32, bf16 and f16, and of f64. `packed` is NULL, or b as
 * product_pack stores it, of f32 alone, for one matrix. */
void KERNEL(product_f32)(const choir__k_matmul *k, const float *packed);
void KERNEL(product_f64)(const choir__k_matmul *k, const double *packed);

/* Packs b for many products, and returns the number of elements that this takes; to NULL:
 * returns the number alone. */
int64_t KERNEL(product_pack)(float *to, const choir__k_matmul *k);

#endif
