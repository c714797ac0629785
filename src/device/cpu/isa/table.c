/* The kernel table of one instruction set. */
#include "device/cpu/isa/isa.h"
#include "device/cpu/onednn/onednn.h"

void KERNEL(matmul)(const choir__k_matmul *k)
{
    choir__onednn_matmul(k);
}

void KERNEL(conv)(const choir__k_conv *k)
{
    choir__onednn_conv(k);
}

void KERNEL(conv_backward_input)(const choir__k_conv_backward_input *k)
{
    choir__onednn_conv_backward_input(k);
}

void KERNEL(conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    choir__onednn_conv_backward_weight(k);
}

const choir__kernels KERNEL_TABLE = {
#define X(name) .name = KERNEL(name),
    CHOIR__KERNEL_LIST(X)
#undef X
};
