/* Arenas: many small objects that die together.
 *
 * Memory is cut off the front of chunks and given back all at once. Emptied chunks are kept for
 * the arena's next life. */
#ifndef CHOIR_ARENA_H
#define CHOIR_ARENA_H

#include "base/base.h"

typedef struct choir__chunk choir__chunk;

typedef struct choir__arena {
    choir__chunk *chunk; /* the one being cut */
    size_t used;         /* of it */
} choir__arena;

/* Zeroed, 16-byte aligned. */
void *choir__arena_get(choir__arena *arena, size_t bytes);
char *choir__arena_strdup(choir__arena *arena, const char *text);

/* Everything is free again; the first chunk stays. */
void choir__arena_reset(choir__arena *arena);
void choir__arena_free(choir__arena *arena);

#endif
