/* SHA-256 (FIPS 180-4) as fast as the machine can: what `sha256sum` says of a file.
 *
 * Where the processor has instructions for it (SHA-NI: 1-2 GB/s) they are used, elsewhere
 * libsodium (a tenth of that). */
#ifndef CHOIR_SHA256_H
#define CHOIR_SHA256_H

#include <sodium.h>
#include "base/base.h"

enum { CHOIR__SHA256_BYTES = 32, CHOIR__SHA256_HEX = 65 }; /* hex: with its '\0' */

typedef struct choir__sha256_state {
    crypto_hash_sha256_state plain; /* of libsodium */
    bool quick;                     /* by the processor: what follows is used instead */
    uint32_t sum[8];
    unsigned char block[64]; /* what is left of the input: bytes % 64 of it */
    uint64_t bytes;
} choir__sha256_state;

void choir__sha256_init(choir__sha256_state *state);
void choir__sha256_update(choir__sha256_state *state, const void *data, size_t bytes);
/* As 64 lower-case hexadecimal digits. */
void choir__sha256_final(choir__sha256_state *state, char hex[CHOIR__SHA256_HEX]);

#endif
