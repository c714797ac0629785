/* The kernel table of one instruction set, and who multiplies in it: oneDNN where it is built
 * in, else product.c and convolution.c. */
#include "device/cpu/isa/isa.h"

#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/onednn.h"
#define MULTIPLIER(name) choir__onednn_##name
#else
#define MULTIPLIER(name) KERNEL(plain_##name)
#endif

void KERNEL(matmul)(const choir__k_matmul *k)
{
    MULTIPLIER(matmul)(k);
}

void KERNEL(conv)(const choir__k_conv *k)
{
    MULTIPLIER(conv)(k);
}

void KERNEL(conv_backward_input)(const choir__k_conv_backward_input *k)
{
    MULTIPLIER(conv_backward_input)(k);
}

void KERNEL(conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    MULTIPLIER(conv_backward_weight)(k);
}

const choir__kernels KERNEL_TABLE = {
#define X(name) .name = KERNEL(name),
    CHOIR__KERNEL_LIST(X)
#undef X
};
