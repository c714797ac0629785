/* Adding records to a file that other processes read. */
#ifndef CHOIR_RECORD_APPEND_H
#define CHOIR_RECORD_APPEND_H

#include "base/base.h"

/* Fails with CHOIR_ERR_IO: "cannot write PATH: ...", with the reason of an errno. */
choir_status choir__record_failed(const char *path, int error);

/* Adds bytes to the end of an open file with one write(). If the disk takes a part of them
 * alone, that part is cut off again. Errors: io (also that the file was removed: nobody would
 * ever read the bytes). */
choir_status choir__record_append(int fd, const char *path, const void *bytes, size_t count);

#endif
