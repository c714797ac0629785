/* SHA-256: see sha256.h. */
#include "checkpoint/sha256.h"

#include <sodium.h>

void choir__sha256_init(choir__sha256_state *state)
{
    SHA256_Init(state);
}

void choir__sha256_update(choir__sha256_state *state, const void *data, size_t bytes)
{
    SHA256_Update(state, data, bytes);
}

void choir__sha256_final(choir__sha256_state *state, char hex[CHOIR__SHA256_HEX])
{
    unsigned char hash[CHOIR__SHA256_BYTES];
    SHA256_Final(hash, state);
    sodium_bin2hex(hex, CHOIR__SHA256_HEX, hash, sizeof hash);
}
