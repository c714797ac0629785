/* A file of lines to which records are added: each with one write(), so a process that is
 * killed leaves whole lines and at most one broken one behind the last. A recorder that
 * continues the file first cuts off the broken line, and the lines that will be written again.
 */
#ifndef CHOIR_RECORD_LINES_H
#define CHOIR_RECORD_LINES_H

#include "base/base.h"

typedef struct choir__lines {
    char *path;
    int fd; /* -1: closed */
} choir__lines;

/* Returns whether a line, without its end, stays. */
typedef bool choir__lines_stay(const char *line, size_t bytes, void *arg);

/* Opens or makes the file. From the first of the lines at its end that do not stay, all are cut
 * off; stay NULL: the whole file is. Errors: io. */
choir_status choir__lines_open(
    choir__lines *lines, const char *path, choir__lines_stay *stay, void *arg);
/* Adds bytes that end with '\n' (choir__record_append). Errors: io. */
choir_status choir__lines_add(choir__lines *lines, const char *bytes, size_t count);
/* Errors: io. */
choir_status choir__lines_close(choir__lines *lines);

/* Adding records to a file that other processes read. */

/* Fails with CHOIR_ERR_IO: "cannot write PATH: ...", with the reason of an errno. */
choir_status choir__record_failed(const char *path, int error);

/* Adds bytes to the end of an open file with one write(); a full disk leaves none of them.
 * Errors: io. A file that was removed counts as one that cannot be written. */
choir_status choir__record_append(int fd, const char *path, const void *bytes, size_t count);

#endif
