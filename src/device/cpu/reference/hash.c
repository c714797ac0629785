/* The hash of tensors and of their parts, element by element (device/kernels/hash.h). */
#include "device/cpu/reference/reference.h"

void choir__reference_hash(const choir__k_hash *k)
{
    size_t each = choir_dtype_size(k->dtype);
    uint64_t sum = 0;
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t c = 0; c < k->cols; c++)
            sum += choir__hash_element((const char *)k->x + (size_t)(r * k->row + c) * each,
                k->dtype, (uint64_t)(k->at + r * k->at_row + c));
    __atomic_fetch_add(k->sum, sum, __ATOMIC_RELAXED); /* cores of a device share it */
}
