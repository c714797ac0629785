/* Keys for the counter-based generator, and PyTorch's own generator for its permutations. */
#include "base/rng.h"

#include "base/hash.h"

uint64_t choir__rng_key(uint64_t seed, const char *name)
{
    uint64_t hash = CHOIR__HASH_SEED;
    for (int i = 0; i < 8; i++)
        hash = choir__hash_step(hash, (seed >> (8 * i)) & 0xFF);
    return choir__mix(choir__hash_text(hash, name), 0);
}

void choir__mt_seed(choir__mt19937 *mt, uint32_t seed)
{
    mt->state[0] = seed;
    for (uint32_t i = 1; i < 624; i++)
        mt->state[i] = 1812433253u * (mt->state[i - 1] ^ (mt->state[i - 1] >> 30)) + i;
    mt->next = 624;
}

static void refill(choir__mt19937 *mt)
{
    uint32_t *s = mt->state;
    for (int i = 0; i < 624; i++) {
        uint32_t y = (s[i] & 0x80000000u) | (s[(i + 1) % 624] & 0x7FFFFFFFu);
        s[i] = s[(i + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    mt->next = 0;
}

uint32_t choir__mt_next(choir__mt19937 *mt)
{
    if (mt->next >= 624)
        refill(mt);
    uint32_t y = mt->state[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680u;
    y ^= (y << 15) & 0xEFC60000u;
    return y ^ (y >> 18);
}

void choir__shuffle_begin(choir__shuffle *s, uint64_t seed, int64_t n, int64_t *out)
{
    choir__mt_seed(&s->mt, (uint32_t)seed);
    s->n = n;
    s->done = 0;
    s->out = out;
    for (int64_t i = 0; i < n; i++)
        out[i] = i;
}

void choir__shuffle_reach(choir__shuffle *s, int64_t count)
{
    int64_t *out = s->out, i = s->done;
    for (; i < count && i < s->n - 1; i++) { /* Fisher-Yates as in ATen on the CPU */
        int64_t j = i + (int64_t)(choir__mt_next(&s->mt) % (uint64_t)(s->n - i));
        int64_t t = out[i];
        out[i] = out[j];
        out[j] = t;
    }
    s->done = i;
}

void choir__randperm(uint64_t seed, int64_t n, int64_t *out)
{
    choir__shuffle s;
    choir__shuffle_begin(&s, seed, n, out);
    choir__shuffle_reach(&s, n);
}
