/* The plug-in's side of plugin.h: the exported table, and the internal functions, which call
 * through the host's table. It is part of every plug-in and of nothing else. */
#include "comm/plugin.h"

#include <stdio.h>

/* Atomic, because ranks that are threads load at the same time. */
static _Atomic(const choir__plugin_host *) table;

static const choir__plugin_host *host(void)
{
    return atomic_load_explicit(&table, memory_order_relaxed);
}

static void start(const choir__plugin_host *of)
{
    atomic_store_explicit(&table, of, memory_order_relaxed);
}

extern const choir__plugin choir_plugin;
__attribute__((visibility("default"))) const choir__plugin choir_plugin = {
    .head = {CHOIR_VERSION, CHOIR__PLUGIN_LAYOUT},
    .start = start,
    .open = choir__plugin_open,
};

#define X(type, name, parameters, arguments)                                                   \
    type name parameters                                                                       \
    {                                                                                          \
        return host()->name arguments;                                                         \
    }
CHOIR__PLUGIN_HOST(X)
#undef X

choir_status choir__engine_fail(
    choir__engine *engine, choir_status status, const char *format, ...)
{
    char text[sizeof engine->message];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host()->engine_fail(engine, status, text);
}
