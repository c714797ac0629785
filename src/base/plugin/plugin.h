/* Plug-ins: parts of Choir that need a library which may not be installed. They are loaded on
 * demand.
 *
 * choir_ucx.so, choir_mpi_*.so, choir_etcd.so, choir_cuda.so and others are opened with dlopen,
 * so a program starts without them and a package can ship them separately. A plug-in is built
 * from the tree's own headers and calls internal functions by their names. It cannot be linked
 * with them: libchoir hides its internal names, and the `choir` command has no libchoir at all.
 * So the loader passes a table of functions, and the plug-in's side (comm/plugin_side.c,
 * device/plugin_side.c) defines those names there, each as one call through the table:
 *
 *     plug-in                                   libchoir.so, or the command
 *     engine: choir__engine_peer(...)
 *       -> plugin_side.c: host->choir__engine_peer(...)  ->  comm/failure.c: choir__engine_peer
 *
 * A plug-in that was built with other structs or another table is refused. */
#ifndef CHOIR_PLUGIN_H
#define CHOIR_PLUGIN_H

#include <choir/dtype.h>

#include "base/base.h"
#include "base/plugin/plugin_head.h"

/* The functions of base/ that every plug-in may call: result, name, parameters, arguments. */
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

/* Loads choir_<name>.so and checks that it matches this build. For messages: `what` is like
 * "backend 'ucx' is", `needs` is what to install. Error: unsupported. */
choir_status choir__plugin_load(const char *name, const char *what, const char *needs,
    uint32_t layout, const choir__plugin_head **plugin);

/* Returns the path of choir_<name>.so: in a folder of CHOIR_PLUGIN_PATH, or in the plug-in
 * folder of this program's build or installation. The path is on the heap. If no folder has it,
 * returns NULL, and `looked` (may be NULL) receives the folders' names, on the heap. */
char *choir__plugin_find(const char *name, char **looked);

#endif
