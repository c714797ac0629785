/* Dropout: 16 Philox counters at once, each good for 4 elements. The generator's rounds are plain
 * loops over 16 counters, which compilers turn into widening multiplies. */
#include <math.h>
#include "base/rng.h"
#include "device/cpu/isa/isa.h"

enum { COUNTERS = 16, WORDS = 4 * COUNTERS };

/* words[4 i + j] = word j of philox(key, hi, lo + i). */
static void philox_block(uint64_t key, uint64_t hi, uint64_t lo, uint32_t words[WORDS])
{
    uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < COUNTERS; i++) {
        c0[i] = (uint32_t)(lo + (uint64_t)i);
        c1[i] = (uint32_t)((lo + (uint64_t)i) >> 32);
        c2[i] = (uint32_t)hi;
        c3[i] = (uint32_t)(hi >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNTERS; i++) {
            uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c1[i] = (uint32_t)p1;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < COUNTERS; i++) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

void KERNEL(dropout)(const choir__k_dropout *k)
{
    F32_ONLY(dropout, k);
    const float *x = k->x;
    float *y = k->y, scale = 1.0f / (1.0f - k->p);
    /* unit(word) >= p in integers: both sides times 2^24, exactly. */
    uint32_t least = (uint32_t)ceil((double)k->p * 0x1p24);
    for (int64_t i = 0; i < k->n; i += WORDS) {
        uint32_t words[WORDS];
        philox_block(k->key, *k->step, (uint64_t)i / 4, words);
        if (k->n - i >= WORDS)
            for (int j = 0; j < WORDS; j++)
                y[i + j] = words[j] >> 8 >= least ? x[i + j] * scale : 0.0f;
        else
            for (int j = 0; j < k->n - i; j++)
                y[i + j] = words[j] >> 8 >= least ? x[i + j] * scale : 0.0f;
    }
}

/* Once a parameter, in f64: not worth a second implementation. */
void KERNEL(random)(const choir__k_random *k)
{
    choir__cpu_reference.random(k);
}
