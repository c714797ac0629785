/* SHA-256 (FIPS 180-4), as `sha256sum` prints it. Computed by OpenSSL, which uses the
 * processor's instructions (1-2 GB/s), or if that is not built in, or not installed, by
 * libsodium (a tenth of it). */
#ifndef CHOIR_SHA256_H
#define CHOIR_SHA256_H

#include "base/base.h"

enum { CHOIR__SHA256_BYTES = 32, CHOIR__SHA256_HEX = 65 }; /* hex: includes the '\0' */

#include <sodium.h>
#ifdef CHOIR_HAVE_CRYPTO
#define OPENSSL_API_COMPAT 0x10101000L /* a state by value: nothing to free, whatever fails */
#include <openssl/sha.h>
#endif

typedef union choir__sha256_state {
    crypto_hash_sha256_state sodium;
#ifdef CHOIR_HAVE_CRYPTO
    SHA256_CTX crypto;
#endif
} choir__sha256_state;

/* Size and hash of a file. */
typedef struct choir__digest {
    int64_t bytes;
    char sha256[CHOIR__SHA256_HEX];
} choir__digest;

void choir__sha256_init(choir__sha256_state *state);
void choir__sha256_update(choir__sha256_state *state, const void *data, size_t bytes);
/* Writes 64 lower-case hexadecimal digits. */
void choir__sha256_final(choir__sha256_state *state, char hex[CHOIR__SHA256_HEX]);

#endif
