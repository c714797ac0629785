/* The entry to the two engines. */
#include "device/cpu/product/product.h"

void KERNEL(own_matmul)(const choir__k_matmul *k)
{
    if (k->dtype == CHOIR_F64)
        KERNEL(product_f64)(k, NULL);
    else
        KERNEL(product_f32)(k, NULL);
}
