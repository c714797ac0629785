/* Products of bf16 in the class of bits `amx`. */
#define REAL float
#define PAIRS
#include "device/cpu/product/engine.h"

void KERNEL(product_pairs)(const choir__k_matmul *k, const uint16_t *packed)
{
    multiply(k, packed);
}
