/* The table of the reference kernels, from the list of all kernels: a kernel without a
 * reference does not link. */
#include "device/cpu/context.h"
#include "device/cpu/reference/reference.h"

const choir__kernels choir__cpu_reference = {
#define X(name) .name = choir__reference_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};
