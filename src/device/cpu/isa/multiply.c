/* The four kernels that multiply, for one instruction set.
 *
 * Choir's own products run them (product/), or oneDNN if it is the engine
 * (cpu/multiplier.c), the product is not small, and it has a fast kernel for that pass, dtype
 * and shape. 16-bit operands that oneDNN does not multiply directly go through f32
 * (cpu/half.c). */
#include "device/cpu/cut.h"
#include "device/cpu/half.h"
#include "device/cpu/multiplier.h"
#include "device/cpu/product/product.h"

#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#define BY_ONEDNN(name, k) (!choir__cpu_own_products() && choir__onednn_##name(k))

/* True if a call of oneDNN takes longer than the product's sums. A program that multiplies
 * small matrices alone neither loads that library nor waits while it generates code. n counts
 * as whole tiles, which is what the sums take. */
static bool is_small(const choir__k_matmul *k)
{
    enum { SMALL = 32 * 1024, TILE = 16 }; /* multiply-adds; columns */
    int64_t columns = (k->n + TILE - 1) / TILE * TILE;
    return k->dtype == CHOIR_F32 && k->batch0 * k->batch1 * k->m * columns * k->k <= SMALL;
}

#else
#define BY_ONEDNN(name, k) false
#define is_small(k)        false
#endif

/* Only matrix products are ever small. */
#define IS_SMALL_matmul(k)               is_small(k)
#define IS_SMALL_conv(k)                 false
#define IS_SMALL_conv_backward_input(k)  false
#define IS_SMALL_conv_backward_weight(k) false

#define WIDE(name)                                                                             \
    static void wide_##name(const choir__k_##name *k)                                          \
    {                                                                                          \
        if (IS_SMALL_##name(k) || !BY_ONEDNN(name, k))                                         \
            KERNEL(plain_##name)(k);                                                           \
    }
WIDE(matmul)
WIDE(conv)
WIDE(conv_backward_input)
WIDE(conv_backward_weight)

/* The kernels for 16-bit operands that were converted to f32. */
static const choir__kernels f32 = {
    .copy = KERNEL(copy),
    .matmul = wide_matmul,
    .conv = wide_conv,
    .conv_backward_input = wide_conv_backward_input,
    .conv_backward_weight = wide_conv_backward_weight,
};

/* Own products widen 16-bit operands while they pack them, or multiply them as they are. */
static bool by_own_products(choir__kernel_id kernel, choir_dtype dtype)
{
    if (!choir__cpu_own_products())
        return false;
    const bool direct = dtype == CHOIR_BF16 && choir__cpu_multiplies() == CHOIR__BY_AMX;
    if (!direct)
        choir__note_way(kernel, dtype, CHOIR__WIDENED);
    return true;
}

/* Only matrix products are ever cut. Our own know cuts; for f64 the reference does. */
static bool by_leaves(const choir__k_matmul *k)
{
    const bool cut = choir__is_cut(k->cut) && !choir__cpu_own_products();
    if (cut)
        choir__cut_matmul(k, KERNEL(matmul));
    return cut;
}
#define BY_LEAVES_matmul(k)               by_leaves(k)
#define BY_LEAVES_conv(k)                 false
#define BY_LEAVES_conv_backward_input(k)  false
#define BY_LEAVES_conv_backward_weight(k) false

#define EITHER(name)                                                                           \
    void KERNEL(name)(const choir__k_##name *k)                                                \
    {                                                                                          \
        if (BY_LEAVES_##name(k))                                                               \
            return;                                                                            \
        if (!is_half(k->dtype)) {                                                              \
            wide_##name(k);                                                                    \
        } else if (by_own_products(CHOIR__KERNEL_##name, k->dtype)) {                          \
            KERNEL(plain_##name)(k);                                                           \
        } else if (!choir__half_products(k->dtype) || !BY_ONEDNN(name, k)) {                   \
            choir__note_way(CHOIR__KERNEL_##name, k->dtype, CHOIR__WIDENED);                   \
            choir__half_##name(&f32, k);                                                       \
        }                                                                                      \
    }
EITHER(matmul)
EITHER(conv)
EITHER(conv_backward_input)
EITHER(conv_backward_weight)
