/* Element types of tensors. Pure functions, any thread. */
#ifndef CHOIR_DTYPE_H
#define CHOIR_DTYPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each row has the name, its text, the bytes and the name in safetensors files. f64 runs on the
 * slow reference kernels and is meant for checks. */
#define CHOIR_DTYPE_LIST(X)                                                                    \
    X(F32, "f32", 4, "F32")                                                                    \
    X(F64, "f64", 8, "F64")                                                                    \
    X(BF16, "bf16", 2, "BF16")                                                                 \
    X(F16, "f16", 2, "F16")                                                                    \
    X(I64, "i64", 8, "I64")                                                                    \
    X(I32, "i32", 4, "I32")                                                                    \
    X(U8, "u8", 1, "U8")                                                                       \
    X(BOOL, "bool", 1, "BOOL")

typedef enum choir_dtype {
#define X(name, text, bytes, safetensors) CHOIR_##name,
    CHOIR_DTYPE_LIST(X)
#undef X
        CHOIR_DTYPE_COUNT
} choir_dtype;

/** Returns the name of the dtype, such as "f32"; "?" for a value outside the list. */
const char *choir_dtype_name(choir_dtype dtype);

/** Returns the bytes per element. */
size_t choir_dtype_size(choir_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
