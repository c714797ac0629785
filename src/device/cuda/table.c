/* The kernel table of CUDA devices. One table serves all dtypes: each kernel selects by its
 * dtype. */
#include "device/cuda/table.h"

#define X(name) .name = choir__cuda_##name,
const choir__kernels choir__cuda_kernels = {CHOIR__KERNEL_LIST(X)};
#undef X
