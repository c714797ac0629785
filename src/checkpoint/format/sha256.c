/* SHA-256 by libcrypto, which is opened for the first hash, as most processes compute none; by
 * libsodium where it is missing. */
#include "checkpoint/format/sha256.h"

#ifdef CHOIR_HAVE_CRYPTO
#include <pthread.h>
#include "base/plugin/library.h"

#define CALLS(X) X(SHA256_, Init) X(SHA256_, Update) X(SHA256_, Final)

static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} openssl;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool there;

static void open_crypto(void)
{
    there = choir__library_open(CHOIR_CRYPTO_LIBRARY, names, CHOIR_COUNT(names), &openssl) ==
            CHOIR_OK;
}

static bool has_openssl(void)
{
    pthread_once(&once, open_crypto);
    return there;
}

#define WITH_OPENSSL(function, ...)                                                            \
    if (has_openssl()) {                                                                       \
        openssl.function(__VA_ARGS__);                                                         \
    } else
#else
#define WITH_OPENSSL(function, ...)
#endif

void choir__sha256_init(choir__sha256_state *state)
{
    WITH_OPENSSL(Init, &state->crypto)
    crypto_hash_sha256_init(&state->sodium);
}

void choir__sha256_update(choir__sha256_state *state, const void *data, size_t bytes)
{
    WITH_OPENSSL(Update, &state->crypto, data, bytes)
    crypto_hash_sha256_update(&state->sodium, data, bytes);
}

void choir__sha256_final(choir__sha256_state *state, char hex[CHOIR__SHA256_HEX])
{
    unsigned char hash[CHOIR__SHA256_BYTES];
    WITH_OPENSSL(Final, hash, &state->crypto)
    crypto_hash_sha256_final(&state->sodium, hash);
    sodium_bin2hex(hex, CHOIR__SHA256_HEX, hash, sizeof hash);
}
