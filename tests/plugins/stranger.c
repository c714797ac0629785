/* Plug-ins for tests/unit/base/plugin.c that do not fit: CMake sets VERSION and LAYOUT. */
#include "comm/plugin.h"

static void start(const choir__plugin_host *host)
{
    (void)host;
    __builtin_trap(); /* must not be called */
}

extern const choir__plugin choir_plugin;
const choir__plugin choir_plugin = {.head = {VERSION, LAYOUT}, .start = start};
