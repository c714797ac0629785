/* The entry to the two engines, and to what computes where oneDNN does not. */
#include "device/cpu/product/small.h"
#include "device/cpu/multiplier.h"
#include "device/cpu/product/product.h"

void KERNEL(own_matmul)(const choir__k_matmul *k)
{
    if (k->dtype == CHOIR_F64)
        KERNEL(product_f64)(k, NULL);
    else
        KERNEL(product_f32)(k, NULL);
}

void KERNEL(plain_matmul)(const choir__k_matmul *k)
{
#ifdef CHOIR_HAVE_ONEDNN
    if (!choir__cpu_own_products()) {
        KERNEL(small_matmul)(k);
        return;
    }
#endif
    KERNEL(own_matmul)(k);
}
