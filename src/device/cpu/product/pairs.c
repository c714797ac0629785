/* Products of bf16 in the class of bits `amx`. */
#define REAL float
#define PAIRS
#include "device/cpu/product/engine.h"

void KERNEL(product_pairs)(const choir__k_matmul *k, const choir__operands *other)
{
    multiply(k, other);
}
