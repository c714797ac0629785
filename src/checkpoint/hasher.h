/* A thread that hashes what another one writes, at the same time. */
#ifndef CHOIR_HASHER_H
#define CHOIR_HASHER_H

#include "checkpoint/sha256.h"

typedef struct choir__hasher choir__hasher;

/* NULL: there can be no thread; whoever asked hashes by itself. */
choir__hasher *choir__hasher_new(choir__sha256_state *state);
/* Begins with data, which stays until the next wait. */
void choir__hasher_add(choir__hasher *hasher, const void *data, size_t bytes);
/* Returns when all that was added is in the state. */
void choir__hasher_wait(choir__hasher *hasher);
void choir__hasher_free(choir__hasher *hasher); /* NULL is fine */

#endif
