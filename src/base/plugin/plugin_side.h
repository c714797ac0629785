/* The common part of every plug-in's side: the host's table, and the struct that the plug-in
 * exports. The host's functions then follow in the plug-in, each a call through the table. */
#ifndef CHOIR_PLUGIN_SIDE_H
#define CHOIR_PLUGIN_SIDE_H

#include <stdatomic.h>

#include "base/plugin/plugin.h"

/* Defines host(), and choir_plugin, of the type `plugin`, whose other members follow. The table
 * is atomic, because ranks that are threads load at the same time. */
#define CHOIR__PLUGIN_SIDE(plugin, host_table, layout, ...)                                    \
    static _Atomic(const host_table *) table;                                                  \
    static const host_table *host(void)                                                        \
    {                                                                                          \
        return atomic_load_explicit(&table, memory_order_relaxed);                             \
    }                                                                                          \
    static void start(const host_table *of)                                                    \
    {                                                                                          \
        atomic_store_explicit(&table, of, memory_order_relaxed);                               \
    }                                                                                          \
    extern const plugin choir_plugin;                                                          \
    __attribute__((visibility("default")))                                                     \
    const plugin choir_plugin = {.head = {CHOIR_VERSION, layout}, .start = start, __VA_ARGS__}

/* For the list of the host's functions: defines one of them. */
#define CHOIR__THROUGH_HOST(type, name, parameters, arguments)                                 \
    type name parameters                                                                       \
    {                                                                                          \
        return host()->name arguments;                                                         \
    }

#endif
