/* Shared libraries that are opened when first needed.
 *
 * The dynamic linker takes 2 ms for oneDNN and 1 ms for libcrypto, in every process that is
 * linked with them, and most commands need neither. So the file that calls such a library has a
 * table of its functions, with the types of the library's own header, and fills it in here:
 *
 *     #define CALLS(X) X(SHA256_, Init) X(SHA256_, Final)
 *     static struct {
 *         CALLS(CHOIR__LIBRARY_CALL)
 *     } crypto;
 *     static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};
 *     choir__library_open("libcrypto.so.3", names, CHOIR_COUNT(names), &crypto);
 *     crypto.Init(&state); */
#ifndef CHOIR_LIBRARY_H
#define CHOIR_LIBRARY_H

#include "base/base.h"

#define CHOIR__LIBRARY_CALL(prefix, name) __typeof__(&prefix##name) name;
#define CHOIR__LIBRARY_NAME(prefix, name) #prefix #name,

/* Opens the library `file`, found as the dynamic linker finds a program's libraries, and writes
 * the addresses of the named functions to `table`, one pointer each. The functions may also
 * belong to libraries on which it depends. The library stays open until the process ends.
 * Error: unsupported, if the library or a function is missing. */
choir_status choir__library_open(
    const char *file, const char *const *names, size_t count, void *table);

#endif
