/* The order of a line's entries. Each value becomes an unsigned key of the same order. A few of
 * the first entries are kept in a sorted list while the line is read; longer results come from
 * a radix sort, one pass for each byte of the dtype. Both keep the order of equal keys. */
#include "device/cpu/isa/isa.h"

typedef choir__sort_entry entry;

enum { BLOCK = 256, SHORT = CHOIR__SORT_SHORT };

/* Returns the key of a float's bits: sign is its highest bit, infinity the bits of +inf. */
INLINE uint64_t float_key(uint64_t bits, uint64_t sign, uint64_t infinity)
{
    uint64_t size = bits & (sign - 1), all = sign | (sign - 1);
    uint64_t key = size == 0 ? sign : bits & sign ? ~bits & all : bits | sign;
    return size > infinity ? all : key;
}

#define READ(T, key)                                                                           \
    for (int64_t i = 0; i < n; i++) {                                                          \
        T v = ((const T *)k->x)[at + i * k->inner];                                            \
        keys[i] = (key) ^ turn;                                                                \
    }                                                                                          \
    break

/* Stores the keys of n entries of a line, from element `at` of x on. */
static void read_keys(uint64_t *keys, const choir__k_sort *k, int64_t at, int64_t n)
{
    uint64_t turn = k->descending ? UINT64_MAX >> (64 - 8 * choir_dtype_size(k->dtype)) : 0;
    switch (k->dtype) {
    case CHOIR_F32: READ(uint32_t, float_key(v, UINT64_C(1) << 31, 0x7f800000));
    case CHOIR_F64: READ(uint64_t, float_key(v, UINT64_C(1) << 63, UINT64_C(0x7ff) << 52));
    case CHOIR_BF16: READ(uint16_t, float_key(v, 1 << 15, 0x7f80));
    case CHOIR_F16: READ(uint16_t, float_key(v, 1 << 15, 0x7c00));
    case CHOIR_I64: READ(uint64_t, v ^ UINT64_C(1) << 63);
    case CHOIR_I32: READ(uint32_t, v ^ UINT32_C(1) << 31);
    default: READ(uint8_t, v);
    }
}

/* Keeps the first `top` entries of a line in `best`, sorted. */
static void select_line(const choir__k_sort *k, int64_t first, entry *best)
{
    uint64_t keys[BLOCK];
    int64_t held = 0;
    for (int64_t from = 0; from < k->n; from += BLOCK) {
        int64_t n = choir__min(BLOCK, k->n - from);
        read_keys(keys, k, first + from * k->inner, n);
        for (int64_t i = 0; i < n; i++) {
            if (held == k->top && keys[i] >= best[held - 1].key)
                continue;
            int64_t to = held < k->top ? held++ : held - 1;
            for (; to > 0 && best[to - 1].key > keys[i]; to--)
                best[to] = best[to - 1];
            best[to] = (entry){keys[i], from + i};
        }
    }
}

/* Sorts n entries of a by their keys' lowest bytes; b has room for them. Returns the one of the
 * two that holds the result. */
static entry *radix_sort(entry *a, entry *b, int64_t n, size_t bytes)
{
    for (size_t shift = 0; shift < 8 * bytes; shift += 8) {
        int64_t place[257] = {0};
        for (int64_t i = 0; i < n; i++)
            place[(a[i].key >> shift & 255) + 1]++;
        if (place[(a[0].key >> shift & 255) + 1] == n)
            continue; /* all have this byte */
        for (int j = 1; j < 256; j++)
            place[j] += place[j - 1];
        for (int64_t i = 0; i < n; i++)
            b[place[a[i].key >> shift & 255]++] = a[i];
        entry *swap = a;
        a = b, b = swap;
    }
    return a;
}

static entry *sort_line(const choir__k_sort *k, int64_t first)
{
    uint64_t keys[BLOCK];
    for (int64_t from = 0; from < k->n; from += BLOCK) {
        int64_t n = choir__min(BLOCK, k->n - from);
        read_keys(keys, k, first + from * k->inner, n);
        for (int64_t i = 0; i < n; i++)
            k->scratch[from + i] = (entry){keys[i], from + i};
    }
    return radix_sort(k->scratch, k->scratch + k->n, k->n, choir_dtype_size(k->dtype));
}

void KERNEL(sort)(const choir__k_sort *k)
{
    bool few = k->top <= SHORT && (k->n <= SHORT || k->top * 8 <= k->n);
    entry best[SHORT];
    for (int64_t l = 0; l < k->outer * k->inner && k->top > 0; l++) {
        int64_t o = l / k->inner, c = l % k->inner, first = o * k->n * k->inner + c;
        const entry *sorted = best;
        if (few)
            select_line(k, first, best);
        else
            sorted = sort_line(k, first);
        for (int64_t r = 0; r < k->top; r++)
            k->index[(o * k->top + r) * k->inner + c] = sorted[r].at;
    }
}
