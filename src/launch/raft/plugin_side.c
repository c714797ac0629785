/* The plug-in's side of plugin.h: the exported table, and the functions of the host, each of
 * which calls through the host's table. */
#include "base/plugin/plugin_side.h"
#include "launch/raft/plugin.h"

CHOIR__PLUGIN_SIDE(
    choir__raft_plugin, choir__raft_host, CHOIR__RAFT_LAYOUT, .open = choir__raft_open);

CHOIR__RAFT_HOST(CHOIR__THROUGH_HOST)
