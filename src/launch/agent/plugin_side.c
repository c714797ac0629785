/* The plug-in's side of plugin.h: the exported table, and the functions of the host, each of
 * which calls through the host's table. It is part of every ledger's plug-in and of nothing
 * else. */
#include "launch/agent/plugin.h"

static const choir__ledger_host *host;

static void start(const choir__ledger_host *of)
{
    host = of;
}

extern const choir__ledger_plugin choir_plugin;
__attribute__((visibility("default"))) const choir__ledger_plugin choir_plugin = {
    .head = {CHOIR_VERSION, CHOIR__LEDGER_LAYOUT},
    .start = start,
    .open = choir__ledger_plugged,
};

#define X(type, name, parameters, arguments)                                                   \
    type name parameters                                                                       \
    {                                                                                          \
        return host->name arguments;                                                           \
    }
CHOIR__LEDGER_HOST(X)
#undef X
