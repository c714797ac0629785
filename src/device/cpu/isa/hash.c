/* The hash of tensors and of their parts (device/kernels/hash.h), at the speed of memory. */
#include "device/cpu/isa/hash_sum.h"

enum { UNROLLED = 2, BUFFERED = 512, AHEAD = 1024 /* words */ };

/* Returns the hash of n words from number `place` on. floats: they are f32. The words are asked
 * for some lines ahead, because the loop computes as long as memory takes to deliver, and both
 * must overlap. */
INLINE uint64_t sum_words(const uint32_t *x, int64_t n, uint64_t place, bool floats)
{
    hash_sums sums[UNROLLED] = {0};
    int64_t i = choir__min(n, (int64_t)(place & 1)); /* pairs begin at even places */
    uint64_t sum = sum_few(x, i, place, floats);
    pairs z = steps_from(place + (uint64_t)i);
    for (; i + UNROLLED * W <= n; i += UNROLLED * W) {
#pragma GCC unroll 2
        for (int u = 0; u < UNROLLED; u++) {
            __builtin_prefetch(x + i + u * W + AHEAD);
            pairs number = numbers_of(z);
            add_words(&sums[u], load_pairs(x + i + u * W, floats), number, number >> 32);
            z += H * CHOIR__HASH_STEP;
        }
    }
    for (int u = 0; u < UNROLLED; u++)
        sum += joined(&sums[u]);
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
