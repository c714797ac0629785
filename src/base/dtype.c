/* Names and sizes of element types, out of the one list in choir/dtype.h. */
#include <choir/dtype.h>

const char *choir_dtype_name(choir_dtype dtype)
{
    switch (dtype) {
#define X(name, text, bytes, safetensors)                                                      \
    case CHOIR_##name: return text;
        CHOIR_DTYPE_LIST(X)
#undef X
    case CHOIR_DTYPE_COUNT: break;
    }
    return "?";
}

size_t choir_dtype_size(choir_dtype dtype)
{
    switch (dtype) {
#define X(name, text, bytes, safetensors)                                                      \
    case CHOIR_##name: return bytes;
        CHOIR_DTYPE_LIST(X)
#undef X
    case CHOIR_DTYPE_COUNT: break;
    }
    return 0;
}
