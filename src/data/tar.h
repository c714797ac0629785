/* Members of a tar: their names, places and sizes. Formats: ustar, with GNU's and POSIX's (pax)
 * long names and sizes. */
#ifndef CHOIR_DATA_TAR_H
#define CHOIR_DATA_TAR_H

#include "base/base.h"

typedef struct choir__tar_member {
    char *name; /* name in the tar; the reader owns it */
    int64_t at; /* offset of its bytes in the file */
    int64_t bytes;
} choir__tar_member;

typedef struct choir__tar {
    const char *path;
    int fd;
    int64_t next, size; /* offset of the next header; size of the file */
    char *name;         /* name of the current member */
} choir__tar;

/* Opens a tar. Close it also after an error. Errors: io. */
choir_status choir__tar_open(choir__tar *tar, const char *path);
void choir__tar_close(choir__tar *tar);

/* Finds the next regular file; member->name NULL: no more files. Errors: io, format (damaged,
 * cut short). */
choir_status choir__tar_next(choir__tar *tar, choir__tar_member *member);

/* Reads a member's bytes, and a '\0' behind them, into *data, which the caller frees. Errors:
 * io, format (the file has become shorter), memory. */
choir_status choir__tar_read(int fd, const char *path, int64_t at, int64_t bytes, char **data);

#endif
