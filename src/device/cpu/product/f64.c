/* Products of f64: the engine (engine.h) with sums in f64, once per instruction set. */
#define REAL double
#include "device/cpu/product/engine.h"

void KERNEL(product_f64)(const choir__k_matmul *k, const choir__operands *other)
{
    multiply(k, other);
}
