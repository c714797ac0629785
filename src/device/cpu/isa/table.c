/* The kernel table of one instruction set, from the list of all kernels: a kernel that this
 * instruction set lacks does not link. */
#include "device/cpu/isa/isa.h"

const choir__kernels KERNEL_TABLE = {
#define X(name) .name = KERNEL(name),
    CHOIR__KERNEL_LIST(X)
#undef X
};
