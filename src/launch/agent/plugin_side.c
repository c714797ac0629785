/* The plug-in's side of plugin.h: the exported table, and the functions of the host, each of
 * which calls through the host's table. It is part of every ledger's plug-in and of nothing
 * else. */
#include "base/plugin/plugin_side.h"
#include "launch/agent/plugin.h"

CHOIR__PLUGIN_SIDE(choir__ledger_plugin, choir__ledger_host, CHOIR__LEDGER_LAYOUT,
    .open = choir__ledger_plugged);

CHOIR__LEDGER_HOST(CHOIR__THROUGH_HOST)
