/* Plug-ins: parts of Choir that stand on a library not everybody has, loaded when asked for.
 *
 * choir_ucx.so, choir_mpi_*.so and choir_cuda.so are dlopened, so a program starts without them
 * and a package can ship them apart. A plug-in is built from the tree's own headers and calls
 * the internals it needs by their names, but it can't be linked with them: libchoir hides what
 * is internal, and the `choir` command has no libchoir at all. So whoever loads it hands over a
 * table of functions, and the plug-in's side (comm/plugin_side.c, device/plugin_side.c) defines
 * those names there, each as one call through the table:
 *
 *     plug-in                                   libchoir.so, or the command
 *     engine: choir__engine_peer(...)
 *       -> plugin_side.c: host->choir__engine_peer(...)  ->  failure.c: choir__engine_peer
 *
 * A plug-in that was built with other structs or another table is refused. */
#ifndef CHOIR_PLUGIN_H
#define CHOIR_PLUGIN_H

#include <choir/dtype.h>

#include "base/base.h"

/* What every plug-in shows under the name choir_plugin begins with this, for builds to come. */
typedef struct choir__plugin_head {
    const char *version; /* CHOIR_VERSION */
    uint32_t layout;     /* a digest of the sizes of structs that both sides know */
} choir__plugin_head;

/* What every plug-in may call of base/: result, name, parameters, arguments. */
#define CHOIR__BASE_HOST(X)                                                                    \
    X(double, choir__now, (void), ())                                                          \
    X(void *, choir__alloc, (size_t bytes), (bytes))                                           \
    X(void *, choir__calloc, (size_t count, size_t size), (count, size))                       \
    X(void *, choir__realloc, (void *p, size_t bytes), (p, bytes))                             \
    X(choir_status, choir__verror, (choir_status status, const char *format, va_list args),    \
        (status, format, args))                                                                \
    X(const char *, choir_error_message, (void), ())                                           \
    X(const char *, choir_dtype_name, (choir_dtype dtype), (dtype))                            \
    X(size_t, choir_dtype_size, (choir_dtype dtype), (dtype))

/* Loads choir_<name>.so and checks that it fits. what: "backend 'ucx' is", needs: what to
 * install, for messages. Errors: unsupported. */
choir_status choir__plugin_load(const char *name, const char *what, const char *needs,
    uint32_t layout, const choir__plugin_head **plugin);

/* Where choir_<name>.so is: in a folder of CHOIR_PLUGIN_PATH, or where this program's build or
 * install has its plug-ins. On the heap; NULL if in none, and `looked` (on the heap, may be
 * NULL) names the folders. */
char *choir__plugin_find(const char *name, char **looked);

#endif
