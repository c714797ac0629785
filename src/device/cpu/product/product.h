/* Matrix products of our own, with the same bits on every processor.
 *
 * The rule of the chain: an element of A B is a chain of fused multiply-adds over k, in rising
 * order from +0. K longer than CHAIN is cut into chains of CHAIN, and a shorter last one, whose
 * sums are added in the fixed tree: a node of n leaves splits at the largest power of two below
 * n. Where K is cut into leaves (device/kernels/cut.h), each leaf is such a sum of its own
 * terms, and leaves are added in the fixed tree, too. Then the bias is added, then the old C if
 * it accumulates, and the result is rounded once to C's type. So bits depend on K and its cut
 * alone, never on instructions, tiles, blocks or cores. */
#ifndef CHOIR_PRODUCT_H
#define CHOIR_PRODUCT_H

#include "device/cpu/isa/isa.h"
#include "device/cpu/product/chain.h"

/* Multiplies operands of any floating dtype, on the cores of the current context. */
void KERNEL(own_matmul)(const choir__k_matmul *k);

/* Operands that are elsewhere than k states. windows_a: row i of A is window i. windows_b: row
 * i of B is window i, so that k runs over windows. packed: B as product_pack stores it, for a
 * batch of one. NULL: the operand is k's. */
typedef struct choir__operands {
    const struct choir__windows *windows_a, *windows_b;
    const void *packed;
} choir__operands;

/* Multiplies small f32 operands beside oneDNN (small.c), and leaves others to the
 * reference. Its sums are not chains. */
void KERNEL(small_matmul)(const choir__k_matmul *k);

/* The engines: operands of f32, bf16 and f16; of f64; and of bf16 in the class `amx`, whatever
 * the processor. `other` may be NULL. */
void KERNEL(product_f32)(const choir__k_matmul *k, const choir__operands *other);
void KERNEL(product_f64)(const choir__k_matmul *k, const choir__operands *other);
void KERNEL(product_pairs)(const choir__k_matmul *k, const choir__operands *other);

/* The engine for k's dtype. */
void KERNEL(product)(const choir__k_matmul *k, const choir__operands *other);

/* Packs b, of f32, for many products by product_f32, and returns the number of elements that
 * this takes; to NULL: returns the number alone. */
int64_t KERNEL(product_pack)(float *to, const choir__k_matmul *k);

#endif
