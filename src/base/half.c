/* Vectorized conversion of rows of bf16 and f16 to f32 and back. x86 CPUs with AVX2 have
 * instructions for f16; these and the shifts of bf16 give the bits of half.h's functions of one
 * element, also for NaNs. */
#include "base/half.h"

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define VECTOR static __attribute__((target("avx2,f16c"))) int64_t

static bool vectors;

/* Asks once: on a virtual machine the instruction cpuid takes as long as converting thousands
 * of numbers. clang's __builtin_cpu_supports does not know f16c. */
static __attribute__((constructor)) void find_vectors(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    vectors =
        __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool have_vectors(void)
{
    return vectors;
}

/* Each function converts a multiple of its vector's length, and returns the number of converted
 * elements. */

VECTOR widen_bf16_vectors(float *out, const uint16_t *in, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), bits);
    }
    return i;
}

VECTOR widen_f16_vectors(float *out, const uint16_t *in, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm_loadu_si128((const __m128i *)(const void *)(in + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
    return i;
}

/* Rounding by integer arithmetic takes the most instructions, so it uses the widest vectors. */
static __attribute__((target("avx512f"))) int64_t narrow_bf16_512(
    uint16_t *out, const float *in, int64_t n)
{
    const __m512i one = _mm512_set1_epi32(1), below_half = _mm512_set1_epi32(0x7FFF);
    const __m512i quiet = _mm512_set1_epi32(0x40);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 value = _mm512_loadu_ps(in + i);
        __m512i bits = _mm512_castps_si512(value), top = _mm512_srli_epi32(bits, 16);
        __m512i up = _mm512_add_epi32(below_half, _mm512_and_si512(top, one));
        __m512i half = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
        __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        half = _mm512_mask_or_epi32(half, nan, top, quiet);
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm512_cvtepi32_epi16(half));
    }
    return i;
}

VECTOR narrow_bf16_vectors(uint16_t *out, const float *in, int64_t n)
{
    if (__builtin_cpu_supports("avx512f"))
        return narrow_bf16_512(out, in, n);
    const __m256i one = _mm256_set1_epi32(1), below_half = _mm256_set1_epi32(0x7FFF);
    const __m256i quiet = _mm256_set1_epi32(0x40);
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 value = _mm256_loadu_ps(in + i);
        __m256i bits = _mm256_castps_si256(value), top = _mm256_srli_epi32(bits, 16);
        __m256i up = _mm256_add_epi32(below_half, _mm256_and_si256(top, one));
        __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
        __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
        __m256i half = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, quiet), nan);
        __m256i packed = _mm256_packus_epi32(half, half); /* 0-3 0-3 4-7 4-7 */
        packed = _mm256_permute4x64_epi64(packed, 0x08);
        _mm_storeu_si128((__m128i *)(void *)(out + i), _mm256_castsi256_si128(packed));
    }
    return i;
}

VECTOR narrow_f16_vectors(uint16_t *out, const float *in, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(void *)(out + i), half);
    }
    return i;
}

#define IN_VECTORS(name) (have_vectors() ? name##_vectors(out, in, n) : 0)
#else
#define IN_VECTORS(name) 0
#endif

#define CONVERT(name, to, from, convert)                                                       \
    void choir__##name(void *out_, const void *in_, int64_t n)                                 \
    {                                                                                          \
        to *out = out_;                                                                        \
        const from *in = in_;                                                                  \
        for (int64_t i = IN_VECTORS(name); i < n; i++)                                         \
            out[i] = convert(in[i]);                                                           \
    }

CONVERT(widen_bf16, float, uint16_t, choir__f32_from_bf16)
CONVERT(widen_f16, float, uint16_t, choir__f32_from_f16)
CONVERT(narrow_bf16, uint16_t, float, choir__bf16_from_f32)
CONVERT(narrow_f16, uint16_t, float, choir__f16_from_f32)
