/* SHA-256: see sha256.h. */
#include "checkpoint/sha256.h"

#include <sodium.h>

void choir__sha256_init(choir__sha256_state *state)
{
#ifdef CHOIR_HAVE_CRYPTO
    SHA256_Init(state);
#else
    crypto_hash_sha256_init(state);
#endif
}

void choir__sha256_update(choir__sha256_state *state, const void *data, size_t bytes)
{
#ifdef CHOIR_HAVE_CRYPTO
    SHA256_Update(state, data, bytes);
#else
    crypto_hash_sha256_update(state, data, bytes);
#endif
}

void choir__sha256_final(choir__sha256_state *state, char hex[CHOIR__SHA256_HEX])
{
    unsigned char hash[CHOIR__SHA256_BYTES];
#ifdef CHOIR_HAVE_CRYPTO
    SHA256_Final(hash, state);
#else
    crypto_hash_sha256_final(state, hash);
#endif
    sodium_bin2hex(hex, CHOIR__SHA256_HEX, hash, sizeof hash);
}
