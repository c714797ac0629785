/* Bytes of a fuzzer as decisions, by which a harness makes a file that is valid in most parts.
 */
#ifndef CHOIR_FUZZ_RECIPE_H
#define CHOIR_FUZZ_RECIPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct recipe {
    const uint8_t *at, *end;
} recipe;

typedef struct blob {
    char *data;
    size_t bytes, room;
} blob;

/* Returns the next decision, from 0 to below - 1; 0 after the end. */
static inline unsigned choose(recipe *r, unsigned below)
{
    return r->at < r->end ? *r->at++ % below : 0;
}

static inline void append(blob *b, const void *data, size_t bytes)
{
    if (b->bytes + bytes >= b->room) {
        b->room = 2 * (b->bytes + bytes) + 64;
        b->data = realloc(b->data, b->room);
    }
    memcpy(b->data + b->bytes, data, bytes);
    b->bytes += bytes;
    b->data[b->bytes] = '\0';
}

static inline void append_text(blob *b, const char *text)
{
    append(b, text, strlen(text));
}

#endif
