/* Keys for the counter-based generator, and PyTorch's own generator for its permutations. */
#include "base/rng.h"

#include <stdlib.h>

#include "base/base.h"
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
    choir__shuffle_end(s);
    choir__mt_seed(&s->mt, (uint32_t)seed);
    s->n = n;
    s->done = 0;
    s->out = out;
    s->moved_count = 0;
    s->room = 256;
    s->moved = choir__calloc((size_t)s->room, sizeof *s->moved);
}

void choir__shuffle_end(choir__shuffle *s)
{
    free(s->moved);
    s->moved = NULL;
}

/* Returns the place in the table of entry `at`, or the one where it belongs. */
static struct choir__moved *place_of(const choir__shuffle *s, int64_t at)
{
    uint64_t i = (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    while (s->moved[i & (uint64_t)(s->room - 1)].at &&
           s->moved[i & (uint64_t)(s->room - 1)].at != at)
        i++;
    return &s->moved[i & (uint64_t)(s->room - 1)];
}

static int64_t entry_of(const choir__shuffle *s, int64_t at)
{
    const struct choir__moved *m = place_of(s, at);
    return m->at ? m->entry : at;
}

static void grow(choir__shuffle *s)
{
    struct choir__moved *old = s->moved;
    int64_t room = s->room;
    s->room *= 2;
    s->moved = choir__calloc((size_t)s->room, sizeof *s->moved);
    for (int64_t i = 0; i < room; i++)
        if (old[i].at)
            *place_of(s, old[i].at) = old[i];
    free(old);
}

/* Writes all entries to out. */
static void write_out(choir__shuffle *s)
{
    for (int64_t i = s->done; i < s->n; i++)
        s->out[i] = entry_of(s, i);
    choir__shuffle_end(s);
}

/* Exchanges entries i, which is final then, and j in the table. */
static void exchange(choir__shuffle *s, int64_t i, int64_t j)
{
    int64_t here = entry_of(s, i);
    s->out[i] = entry_of(s, j);
    if (i == j)
        return;
    struct choir__moved *m = place_of(s, j);
    s->moved_count += !m->at;
    *m = (struct choir__moved){j, here};
    if (2 * s->moved_count > s->room)
        grow(s);
}

void choir__shuffle_reach(choir__shuffle *s, int64_t count)
{
    if (s->moved && count > s->n / 16)
        write_out(s);
    for (; s->done < count && s->done < s->n - 1; s->done++) { /* Fisher-Yates as in ATen */
        int64_t i = s->done, j = i + (int64_t)(choir__mt_next(&s->mt) % (uint64_t)(s->n - i));
        if (s->moved) {
            exchange(s, i, j);
            continue;
        }
        int64_t t = s->out[i];
        s->out[i] = s->out[j];
        s->out[j] = t;
    }
}

void choir__randperm(uint64_t seed, int64_t n, int64_t *out)
{
    choir__shuffle s = {0};
    choir__shuffle_begin(&s, seed, n, out);
    choir__shuffle_reach(&s, n);
    choir__shuffle_end(&s);
}
