/* Files that appear whole or not at all, and what a file's bytes hash to.
 *
 * A draft is a temporary file beside its target. It becomes the target by one rename, after
 * its bytes are on the disk; until then, and whatever fails, the target is what it was. */
#ifndef CHOIR_FILE_H
#define CHOIR_FILE_H

#include "checkpoint/hasher.h"

typedef struct choir__draft {
    char *path, *temp;
    int fd;                 /* -1: not open */
    int64_t bytes, flushed; /* written so far; of those the disk was told to take */
    bool hashed;            /* what is written is hashed, too: to be set once it is open */
    choir__sha256_state hash;
    choir__hasher *hasher; /* of large pieces; NULL: there was none yet */
} choir__draft;

/* Errors: io, naming the target and the cause. */
choir_status choir__draft_open(choir__draft *draft, const char *path);
choir_status choir__draft_write(choir__draft *draft, const void *data, size_t bytes);
/* Ends the draft: puts it in the target's place if status is OK, else removes it. Returns
 * status, or the error met on the way. */
choir_status choir__draft_close(choir__draft *draft, choir_status status);

/* The whole of a small file at once. */
choir_status choir__write_file(const char *path, const void *data, size_t bytes);

/* Makes sure that what a file or folder holds is on the disk. */
choir_status choir__sync_path(const char *path);

void choir__sha256(const void *data, size_t bytes, char *hex);
choir_status choir__sha256_file(const char *path, char *hex, int64_t *bytes);

#endif
