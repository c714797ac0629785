/* A queue of bytes: received and not yet read, or not yet sent. It grows with the bytes that
 * are really there, never with the length that a peer announces. */
#ifndef CHOIR_LAUNCH_STORE_BYTES_H
#define CHOIR_LAUNCH_STORE_BYTES_H

#include <stdlib.h>
#include <string.h>
#include "base/base.h"

typedef struct choir__bytes {
    uint8_t *data;
    size_t from, to, room; /* data[from..to) is the queue */
} choir__bytes;

static inline size_t choir__bytes_left(const choir__bytes *b)
{
    return b->to - b->from;
}

/* Returns the first byte of the queue; NULL if nothing was ever in it. */
static inline const uint8_t *choir__bytes_front(const choir__bytes *b)
{
    return b->data ? b->data + b->from : NULL;
}

/* Returns space for `bytes` more bytes after the queue. */
static inline uint8_t *choir__bytes_grow(choir__bytes *b, size_t bytes)
{
    if (b->room - b->to >= bytes)
        return b->data + b->to;
    if (b->from) {
        memmove(b->data, b->data + b->from, b->to - b->from);
        b->to -= b->from;
        b->from = 0;
    }
    if (b->room - b->to < bytes) {
        size_t twice = 2 * b->room, need = b->to + bytes;
        b->room = need > twice ? need : twice;
        b->data = choir__realloc(b->data, b->room);
    }
    return b->data + b->to;
}

static inline void choir__bytes_put(choir__bytes *b, const void *data, size_t bytes)
{
    if (!bytes)
        return;
    memcpy(choir__bytes_grow(b, bytes), data, bytes);
    b->to += bytes;
}

static inline void choir__bytes_free(choir__bytes *b)
{
    free(b->data);
    *b = (choir__bytes){0};
}

/* Removes bytes from the front. Large memory is released when the queue becomes empty. */
static inline void choir__bytes_skip(choir__bytes *b, size_t bytes)
{
    b->from += bytes;
    if (b->from == b->to) {
        b->from = b->to = 0;
        if (b->room > 64 * 1024)
            choir__bytes_free(b);
    }
}

#endif
