/* Files that appear whole or not at all, and hashes of files.
 *
 * A draft is a temporary file beside its target. One rename makes it the target, after its
 * bytes are on the disk. Until then, and after any failure, the target is unchanged. */
#ifndef CHOIR_FILE_H
#define CHOIR_FILE_H

#include "checkpoint/writer.h"

typedef struct choir__draft {
    char *path, *temp;
    int fd; /* -1: not open */
    choir__writer *writer;
} choir__draft;

/* Errors: io, naming the target and the cause. */
choir_status choir__draft_open(choir__draft *draft, const char *path);
choir_status choir__draft_write(choir__draft *draft, const void *data, size_t bytes);
/* Ends the draft: replaces the target if status is OK, else removes the draft. digest receives
 * the size and hash of the data; it may be NULL. Returns status, or the first error while
 * ending it. */
choir_status choir__draft_close(
    choir__draft *draft, choir_status status, choir__digest *digest);

/* Writes a small file in one call, and reads it again. Errors: io; state (the bytes have
 * changed on the way). */
choir_status choir__write_file(const char *path, const void *data, size_t bytes);

/* Syncs a file or folder: its contents are on the disk afterwards. */
choir_status choir__sync_path(const char *path);

void choir__sha256(const void *data, size_t bytes, char *hex);
/* Reads a file on the calling thread, and hashes it on another if it is large. Errors: io. */
choir_status choir__sha256_file(const char *path, choir__digest *digest);

#endif
