/* The job's key: a secret of at least 32 bytes that all ranks hold. It comes from a file that
 * only its owner may read, or from a descriptor; never from the command line, which is
 * public. Its memory is left out of core dumps. */
#ifndef CHOIR_LAUNCH_STORE_KEY_H
#define CHOIR_LAUNCH_STORE_KEY_H

#include <choir/status.h>
#include <stddef.h>
#include <stdint.h>

typedef struct choir__store_key {
    uint8_t bytes[32]; /* BLAKE2b of the secret, byte for byte */
} choir__store_key;

enum { CHOIR__KEY_MIN = 32, CHOIR__KEY_MAX = 64 * 1024 };

/* Stores a key of unspecified bytes in *key. Error: memory. */
choir_status choir__store_key_new(choir__store_key **key);
/* Erases the key. Accepts NULL. */
void choir__store_key_free(choir__store_key *key);

/* Errors: argument (too short, too long, readable by others), I/O. */
choir_status choir__store_key_read_file(const char *path, choir__store_key *key);
choir_status choir__store_key_read_fd(int fd, choir__store_key *key);
/* Makes a key of a secret. Tests call it, too. */
void choir__store_key_of(const void *secret, size_t bytes, choir__store_key *key);

#endif
