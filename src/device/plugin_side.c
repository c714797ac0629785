/* The plug-in's side of plugin.h: the struct that it exports, and the internal names, each
 * defined as a call through the host's table. It is a part of every backend's plug-in and of
 * nothing else. */
#include <stdio.h>

#include "base/plugin/plugin_side.h"
#include "device/plugin.h"

CHOIR__PLUGIN_SIDE(choir__device_plugin, choir__device_host, CHOIR__DEVICE_LAYOUT,
    .backend = &choir__plugged_backend);

CHOIR__DEVICE_HOST(CHOIR__THROUGH_HOST)

choir_status choir__queue_fail(choir_status status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return host()->queue_fail(status, text);
}
