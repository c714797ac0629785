/* The one hash function: FNV-1a, 64 bits (Fowler, Noll, Vo). A hash is extended by one value at
 * a time and depends on their order:
 *
 *     hash = (hash ^ value) * prime,   from CHOIR__HASH_SEED on
 *
 * Its values are part of what users see (random keys derive from names by it, and ranks compare
 * digests of their models), so its bits never change. */
#ifndef CHOIR_HASH_H
#define CHOIR_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CHOIR__HASH_SEED UINT64_C(0xCBF29CE484222325)

/* Extends the hash by one value; standard FNV-1a uses one byte at a time. */
static inline uint64_t choir__hash_step(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x100000001B3);
}

static inline uint64_t choir__hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data, *end = at + bytes;
    while (at < end)
        hash = choir__hash_step(hash, *at++);
    return hash;
}

/* Extends the hash by the text's characters, without its final zero. */
static inline uint64_t choir__hash_text(uint64_t hash, const char *text)
{
    return choir__hash_bytes(hash, text, strlen(text));
}

/* Returns a random seed, for tables of texts that strangers choose: under the usual one they
 * can give all of them one slot. */
uint64_t choir__hash_secret(void);

/* Returns the slot that the hash selects in a table whose size is a power of two. */
static inline size_t choir__hash_slot(uint64_t hash, size_t slots)
{
    return (size_t)(hash ^ hash >> 29) & (slots - 1);
}

#endif
