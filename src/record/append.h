/* Adding records to a file that other processes read. */
#ifndef CHOIR_RECORD_APPEND_H
#define CHOIR_RECORD_APPEND_H

#include "base/base.h"

/* Fails with CHOIR_ERR_IO: "cannot write PATH: ...", with the reason of an errno. */
choir_status choir__record_failed(const char *path, int error);

/* Adds bytes to the end of an open file with one write(); a full disk leaves none of them.
 * Errors: io. A file that was removed counts as one that cannot be written. */
choir_status choir__record_append(int fd, const char *path, const void *bytes, size_t count);

#endif
