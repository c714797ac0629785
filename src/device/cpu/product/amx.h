/* AMX: registers of 16 x 64 bytes, and an instruction that multiplies two of them. */
#ifndef CHOIR_PRODUCT_AMX_H
#define CHOIR_PRODUCT_AMX_H

#include <stdbool.h>

#if defined(__AVX512F__) && defined(__linux__) && defined(__has_include)
#if __has_include(<amxbf16intrin.h>)
#include <immintrin.h>
#define CHOIR_AMX
#endif
#endif

/* True if this process may use the instructions. The first call asks the kernel to save the
 * registers of its threads. */
bool choir__amx_here(void);

#endif
