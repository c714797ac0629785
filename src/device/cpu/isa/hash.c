/* The hash of tensors and of their parts (device/kernels_hash.h), at the speed of memory.
 *
 * A vector has W words, or W / 2 pairs of neighbours. The pairs' numbers
 * are computed beside them: multiples of the pairs' places, which grow by one addition per
 * vector, and the product of their halves. A word times a number is two products of 32 bits,
 * for which the words stay where they are; the sums of both are joined at the end of a row.
 *
 * With the halves of two words, a and b, and of their numbers, l and h, the sum's lower half is
 * al + bh, and its upper half ah + bl = (a + b) (l + h) - (al + bh), and 32 bits of it count:
 * three products serve two words. The words are asked for some lines ahead, because the loop
 * computes as long as memory takes to deliver, and both must overlap. */
#include "device/cpu/isa/isa.h"

enum { H = W / 2, UNROLLED = 2, BUFFERED = 512, AHEAD = 1024 /* words */ };

typedef uint64_t pairs __attribute__((vector_size(4 * W)));
typedef uint32_t words __attribute__((vector_size(4 * W)));

/* Returns the products of the lower 32 bits. */
INLINE pairs product(pairs a, pairs b)
{
#if defined(__AVX512F__)
    return (pairs)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (pairs)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (pairs)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
    return (a & UINT64_C(0xffffffff)) * (b & UINT64_C(0xffffffff));
#endif
}

/* choir__hash_pair, given the places' multiples of CHOIR__HASH_STEP. */
INLINE pairs numbers_of(pairs z)
{
    z ^= z >> 32;
    z += product(z, z >> 32);
    return (z ^ z >> 32) | UINT64_C(0x100000001);
}

INLINE pairs load_pairs(const uint32_t *x, bool floats)
{
    words word;
    memcpy(&word, x, sizeof word);
    if (floats) {
        words nan = (words)((ivec)(word & 0x7fffffffu) > 0x7f800000);
        word = (word & ~nan) | (nan & 0x7fc00000u);
    }
    return (pairs)word;
}

/* Returns the hash of n words one by one. */
INLINE uint64_t sum_few(const uint32_t *x, int64_t n, uint64_t place, bool floats)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += choir__hash_element(x + i, floats ? CHOIR_F32 : CHOIR_I32, place + (uint64_t)i);
    return sum;
}

/* Returns the hash of n words from number `place` on. floats: they are f32. */
INLINE uint64_t sum_words(const uint32_t *x, int64_t n, uint64_t place, bool floats)
{
    pairs z = {0}, low[UNROLLED] = {0}, both[UNROLLED] = {0};
    int64_t i = choir__min(n, (int64_t)(place & 1)); /* pairs begin at even places */
    uint64_t sum = sum_few(x, i, place, floats);
    for (int j = 0; j < H; j++)
        z[j] = ((place + (uint64_t)i) / 2 + (uint64_t)j + 1) * CHOIR__HASH_STEP;
    for (; i + UNROLLED * W <= n; i += UNROLLED * W) {
#pragma GCC unroll 2
        for (int u = 0; u < UNROLLED; u++) {
            __builtin_prefetch(x + i + u * W + AHEAD);
            pairs number = numbers_of(z), word = load_pairs(x + i + u * W, floats);
            pairs above = number >> 32, upper = word >> 32;
            low[u] += product(word, number) + product(upper, above);
            both[u] += product(word + upper, number + above);
            z += H * CHOIR__HASH_STEP;
        }
    }
    for (int u = 0; u < UNROLLED; u++)
        for (int j = 0; j < H; j++)
            sum += low[u][j] + ((both[u][j] - low[u][j]) << 32);
    return sum + sum_few(x + i, n - i, place + (uint64_t)i, floats);
}

/* Makes words of n elements of 16 bits or 1 byte. */
static void widen(uint32_t *to, const char *x, choir_dtype dtype, int64_t n)
{
    const uint16_t *half = (const uint16_t *)(const void *)x;
    bool bf16 = dtype == CHOIR_BF16;
    uint32_t infinity = bf16 ? 0x7f80 : 0x7c00, nan = bf16 ? 0x7fc0 : 0x7e00;
    for (int64_t i = 0; i < n; i++)
        to[i] = is_half(dtype) ? choir__hash_float(half[i], 0x8000, infinity, nan)
                               : (unsigned char)x[i];
}

static uint64_t sum_narrow(const char *x, choir_dtype dtype, int64_t n, uint64_t place)
{
    uint32_t buffer[BUFFERED];
    uint64_t sum = 0;
    size_t each = choir_dtype_size(dtype);
    for (int64_t i = 0; i < n; i += BUFFERED) {
        int64_t count = choir__min(n - i, BUFFERED);
        widen(buffer, x + (size_t)i * each, dtype, count);
        sum += sum_words(buffer, count, place + (uint64_t)i, false);
    }
    return sum;
}

static uint64_t sum_doubles(const char *x, int64_t n, uint64_t place)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += choir__hash_element(x + 8 * i, CHOIR_F64, place + (uint64_t)i);
    return sum;
}

static uint64_t sum_row(const void *x, choir_dtype dtype, int64_t n, uint64_t place)
{
    switch (dtype) {
    case CHOIR_F32: return sum_words(x, n, place, true);
    case CHOIR_I32: return sum_words(x, n, place, false);
    case CHOIR_I64: return sum_words(x, 2 * n, 2 * place, false);
    case CHOIR_F64: return sum_doubles(x, n, place);
    default: return sum_narrow(x, dtype, n, place);
    }
}

void KERNEL(hash)(const choir__k_hash *k)
{
    size_t each = choir_dtype_size(k->dtype);
    uint64_t sum = 0;
    for (int64_t r = 0; r < k->rows; r++)
        sum += sum_row((const char *)k->x + (size_t)(r * k->row) * each, k->dtype, k->cols,
            (uint64_t)(k->at + r * k->at_row));
    __atomic_fetch_add(k->sum, sum, __ATOMIC_RELAXED); /* cores of a device share it */
}
