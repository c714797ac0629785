/* The four kernels that multiply, for one instruction set: oneDNN runs them if it is built in
 * and the product is not small, else product.c and convolution.c do. 16-bit operands that
 * neither multiplies directly go through f32 (half.c). */
#include "device/cpu/half.h"
#include "device/cpu/isa/isa.h"

#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#define MULTIPLIER(name) choir__onednn_##name
#else
#define MULTIPLIER(name) KERNEL(plain_##name)
#endif

/* The kernels for 16-bit operands that were converted to f32. */
static const choir__kernels f32 = {
    .copy = KERNEL(copy),
    .matmul = MULTIPLIER(matmul),
    .conv = MULTIPLIER(conv),
    .conv_backward_input = MULTIPLIER(conv_backward_input),
    .conv_backward_weight = MULTIPLIER(conv_backward_weight),
};

static bool through_f32(choir_dtype dtype)
{
    return (dtype == CHOIR_BF16 || dtype == CHOIR_F16) && !choir__half_products(dtype);
}

/* True if a call of oneDNN takes longer than the product's sums. A program that multiplies
 * small matrices alone neither loads that library nor waits while it generates code. n counts
 * as whole tiles, which is what the sums take. */
static bool is_small(const choir__k_matmul *k)
{
    enum { SMALL = 32 * 1024, TILE = 16 }; /* multiply-adds; columns */
    int64_t columns = (k->n + TILE - 1) / TILE * TILE;
    return k->dtype == CHOIR_F32 && k->k > 0 &&
           k->batch0 * k->batch1 * k->m * columns * k->k <= SMALL;
}

void KERNEL(matmul)(const choir__k_matmul *k)
{
    if (through_f32(k->dtype) && k->k > 0)
        choir__half_matmul(&f32, k);
    else if (is_small(k))
        KERNEL(plain_matmul)(k);
    else
        MULTIPLIER(matmul)(k);
}

void KERNEL(conv)(const choir__k_conv *k)
{
    if (through_f32(k->dtype))
        choir__half_conv(&f32, k);
    else
        MULTIPLIER(conv)(k);
}

void KERNEL(conv_backward_input)(const choir__k_conv_backward_input *k)
{
    if (through_f32(k->dtype))
        choir__half_conv_backward_input(&f32, k);
    else
        MULTIPLIER(conv_backward_input)(k);
}

void KERNEL(conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    if (through_f32(k->dtype))
        choir__half_conv_backward_weight(&f32, k);
    else
        MULTIPLIER(conv_backward_weight)(k);
}
