/* Arenas as lists of chunks, newest first. An object is cut from the front of the newest chunk,
 * at a multiple of 16 bytes, and zeroed; a larger object gets a chunk of its own size. A reset
 * keeps the oldest chunk alone, so that a scope that is opened again needs no allocation. */
#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 << 10 };

struct choir__chunk {
    choir__chunk *older;
    size_t bytes;
    _Alignas(16) unsigned char data[];
};

static void add_chunk(choir__arena *arena, size_t bytes)
{
    bytes = bytes > CHUNK ? bytes : CHUNK;
    choir__chunk *chunk = choir__alloc(sizeof *chunk + bytes);
    chunk->older = arena->chunk;
    chunk->bytes = bytes;
    arena->chunk = chunk;
    arena->used = 0;
}

void *choir__arena_get(choir__arena *arena, size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (!arena->chunk || arena->chunk->bytes - arena->used < bytes)
        add_chunk(arena, bytes);
    void *p = arena->chunk->data + arena->used;
    arena->used += bytes;
    return memset(p, 0, bytes);
}

char *choir__arena_strdup(choir__arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(choir__arena_get(arena, bytes), text, bytes);
}

void choir__arena_reset(choir__arena *arena)
{
    while (arena->chunk && arena->chunk->older) {
        choir__chunk *older = arena->chunk->older;
        free(arena->chunk);
        arena->chunk = older;
    }
    arena->used = 0;
}

void choir__arena_free(choir__arena *arena)
{
    choir__arena_reset(arena);
    free(arena->chunk);
    *arena = (choir__arena){0};
}
