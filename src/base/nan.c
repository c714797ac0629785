/* Blocks are read first and written only if they contain a NaN: nearly none does, and reading
 * costs a fraction of the copy that was made before. The loops have no branch, so that they
 * become vectors. `data` need not be aligned. */
#include "base/nan.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 1024 }; /* numbers */

#define ONE_NAN(name, T, infinity, nan)                                                        \
    static void one_##name(char *data, size_t count)                                           \
    {                                                                                          \
        const T magnitude = (T) ~((T)1 << (8 * sizeof(T) - 1));                                \
        T block[BLOCK];                                                                        \
        for (size_t at = 0, n; at < count; at += n, data += n * sizeof(T)) {                   \
            T any = 0;                                                                         \
            n = count - at < BLOCK ? count - at : BLOCK;                                       \
            memcpy(block, data, n * sizeof(T));                                                \
            for (size_t i = 0; i < n; i++)                                                     \
                any |= (T)(block[i] & magnitude) > (T)(infinity);                              \
            for (size_t i = 0; any && i < n; i++)                                              \
                block[i] = (T)(block[i] & magnitude) > (T)(infinity) ? (T)(nan) : block[i];    \
            if (any)                                                                           \
                memcpy(data, block, n * sizeof(T));                                            \
        }                                                                                      \
    }
ONE_NAN(f32, uint32_t, 0x7f800000, 0x7fc00000)
ONE_NAN(f64, uint64_t, UINT64_C(0x7ff) << 52, UINT64_C(0xfff) << 51)
ONE_NAN(bf16, uint16_t, 0x7f80, 0x7fc0)
ONE_NAN(f16, uint16_t, 0x7c00, 0x7e00)

void choir__one_nan(void *data, choir_dtype dtype, size_t count)
{
    switch (dtype) {
    case CHOIR_F32: one_f32(data, count); break;
    case CHOIR_F64: one_f64(data, count); break;
    case CHOIR_BF16: one_bf16(data, count); break;
    case CHOIR_F16: one_f16(data, count); break;
    default: break;
    }
}
