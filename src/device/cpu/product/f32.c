/* Products of f32, bf16 and f16, in f32. */
#define REAL float
#include "device/cpu/product/engine.h"

void KERNEL(product_f32)(const choir__k_matmul *k, const float *packed)
{
    multiply(k, packed);
}

int64_t KERNEL(product_pack)(float *to, const choir__k_matmul *k)
{
    const matrix b = {k->b, k->b_col, k->b_row, k->dtype};
    const int64_t columns = whole(k->n, BROAD);
    for (int64_t from = 0; to && from < k->k; from += CHAIN)
        pack(to + from * columns, &b, 0, k->n, from, choir__min(CHAIN, k->k - from), BROAD);
    return columns * k->k;
}
