/* The plug-in's side of plugin.h: the struct that it exports, and the internal names, each
 * defined as a call through the host's table. It is a part of every backend's plug-in and of
 * nothing else. */
#include "device/plugin.h"

#include <stdio.h>

static const choir__device_host *host;

static void start(const choir__device_host *of)
{
    host = of;
}

extern const choir__device_plugin choir_plugin;
__attribute__((visibility("default"))) const choir__device_plugin choir_plugin = {
    .head = {CHOIR_VERSION, CHOIR__DEVICE_LAYOUT},
    .start = start,
    .backend = &choir__plugged_backend,
};

#define X(type, name, parameters, arguments)                                                   \
    type name parameters                                                                       \
    {                                                                                          \
        return host->name arguments;                                                           \
    }
CHOIR__DEVICE_HOST(X)
#undef X

choir_status choir__queue_fail(choir_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host->queue_fail(status, text);
}
