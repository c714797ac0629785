/* A thread that hashes data while the caller writes it. */
#ifndef CHOIR_HASHER_H
#define CHOIR_HASHER_H

#include "checkpoint/sha256.h"

typedef struct choir__hasher choir__hasher;

/* Returns NULL if no thread can be started; the caller then hashes by itself. */
choir__hasher *choir__hasher_new(choir__sha256_state *state);
/* Waits for the previous data, then starts to hash this; it must stay until the next wait. */
void choir__hasher_add(choir__hasher *hasher, const void *data, size_t bytes);
/* Returns when the state includes everything that was added. */
void choir__hasher_wait(choir__hasher *hasher);
void choir__hasher_free(choir__hasher *hasher); /* NULL is fine */

#endif
