/* Arenas: many small objects that are freed together.
 *
 * Memory is cut from the front of chunks and released all at once. */
#ifndef CHOIR_ARENA_H
#define CHOIR_ARENA_H

#include "base/base.h"

typedef struct choir__chunk choir__chunk;

typedef struct choir__arena {
    choir__chunk *chunk; /* the chunk in use */
    size_t used;         /* bytes of that chunk */
} choir__arena;

/* Returns zeroed memory, 16-byte aligned. */
void *choir__arena_get(choir__arena *arena, size_t bytes);
char *choir__arena_strdup(choir__arena *arena, const char *text);

/* Invalidates all objects. The oldest chunk is kept for the next use; choir__arena_free
 * releases it too. */
void choir__arena_reset(choir__arena *arena);
void choir__arena_free(choir__arena *arena);

#endif
