/* The plug-in's side of plugin.h: the exported table, and the internal functions, which call
 * through the host's table. It is part of every plug-in and of nothing else. */
#include <stdio.h>

#include "base/plugin/plugin_side.h"
#include "comm/plugin.h"

CHOIR__PLUGIN_SIDE(
    choir__plugin, choir__plugin_host, CHOIR__PLUGIN_LAYOUT, .open = choir__plugin_open);

CHOIR__PLUGIN_HOST(CHOIR__THROUGH_HOST)

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
