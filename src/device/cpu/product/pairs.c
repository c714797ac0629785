/* Products of bf16 in the class of bits `amx`: the engine (engine.h) with tiles that add
 * pairs of terms in the order of AMX (pairs_tile.h), once per instruction set. */
#define REAL float
#define PAIRS
#include "device/cpu/product/engine.h"

void KERNEL(product_pairs)(const choir__k_matmul *k, const choir__operands *other)
{
    multiply(k, other);
}
