/* Chooses the engine for a product by its dtype and the job's class of bits, and decides
 * which products Choir's own kernels compute in a build that has oneDNN. */
#include "device/cpu/multiplier.h"
#include "device/cpu/product/product.h"

void KERNEL(product)(const choir__k_matmul *k, const choir__operands *other)
{
    if (k->dtype == CHOIR_F64)
        KERNEL(product_f64)(k, other);
    else if (k->dtype == CHOIR_BF16 && choir__cpu_multiplies() == CHOIR__BY_AMX)
        KERNEL(product_pairs)(k, other);
    else
        KERNEL(product_f32)(k, other);
}

void KERNEL(own_matmul)(const choir__k_matmul *k)
{
    KERNEL(product)(k, NULL);
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
