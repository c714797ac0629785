/* A queue of bytes: what came and is not read yet, what is to go and is not sent yet. It grows
 * with what is really there, never with what a peer says will come. */
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

static inline const uint8_t *choir__bytes_front(const choir__bytes *b)
{
    return b->data + b->from;
}

/* Room for `bytes` more behind the queue. */
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

/* Takes bytes off the front. Large memory goes back when the queue runs empty. */
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
