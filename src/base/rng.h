/* Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as
 * easy as 1, 2, 3", SC'11). A number is a pure function of a key and a counter, so dropout
 * masks and initial weights depend neither on the device that computes them nor on the
 * order. */
#ifndef CHOIR_RNG_H
#define CHOIR_RNG_H

#include "base/base.h"

/* The kernels of GPUs use the two functions below, too. */
CHOIR__BOTH static inline void choir__philox(
    uint64_t key, uint64_t hi, uint64_t lo, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)lo, c1 = (uint32_t)(lo >> 32);
    uint32_t c2 = (uint32_t)hi, c3 = (uint32_t)(hi >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Maps bits to [0, 1), using 24 of them. */
CHOIR__BOTH static inline float choir__unit(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Derives a key from a seed and a name: FNV-1a over both, then the splitmix64 finaliser. */
uint64_t choir__rng_key(uint64_t seed, const char *name);

/* Mixes one more number into a key with the splitmix64 finaliser. */
static inline uint64_t choir__mix(uint64_t key, uint64_t value)
{
    uint64_t z = key + 0x9E3779B97F4A7C15u * (value + 1);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* MT19937, the generator behind torch.randperm and torch's default initialisation. */
typedef struct choir__mt19937 {
    uint32_t state[624];
    int next;
} choir__mt19937;

void choir__mt_seed(choir__mt19937 *mt, uint32_t seed);
uint32_t choir__mt_next(choir__mt19937 *mt);

/* Writes torch.randperm(n) of a generator seeded with seed to out[n]. */
void choir__randperm(uint64_t seed, int64_t n, int64_t *out);

/* The permutation of choir__randperm, computed as far as it is read: entries
 * out[0, done) are final. While they are few, the others are not written: those that have been
 * exchanged are in a table, and entry i is i in all others, so that the first step of a
 * training does not touch the order of a million samples. */
typedef struct choir__shuffle {
    choir__mt19937 mt;
    int64_t n, done, *out;
    /* (room) a power of two; entry `at`, which is not 0; NULL: out has all entries */
    struct choir__moved {
        int64_t at, entry;
    } * moved;
    int64_t moved_count, room;
} choir__shuffle;

/* s: zeros, or a permutation that was begun before. */
void choir__shuffle_begin(choir__shuffle *s, uint64_t seed, int64_t n, int64_t *out);
/* Makes out[0, count) final. */
void choir__shuffle_reach(choir__shuffle *s, int64_t count);
void choir__shuffle_end(choir__shuffle *s);

#endif
