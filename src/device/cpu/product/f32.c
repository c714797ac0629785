/* Products of f32, bf16 and f16: the engine (engine.h) with sums in f32, once per
 * instruction set. Instruction sets with fused multiply-add instructions also get the path
 * for few rows. */
#define REAL float
#if defined(__AVX2__) || defined(__aarch64__)
#define THIN                                                                                   \
    8 /* rows up to which thin.h multiplies; without an instruction it would not pay           \
       */
#endif
#include "device/cpu/product/engine.h"

void KERNEL(product_f32)(const choir__k_matmul *k, const choir__operands *other)
{
    multiply(k, other);
}

int64_t KERNEL(product_pack)(float *to, const choir__k_matmul *k)
{
    if (to)
        pack_all(to, k);
    return packed_cells(k);
}
