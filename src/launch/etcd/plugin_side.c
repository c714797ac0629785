/* The plug-in's side of plugin.h: the exported table, and base's functions, each of which calls
 * through the host's table. */
#include "base/plugin/plugin_side.h"
#include "launch/etcd/plugin.h"

CHOIR__PLUGIN_SIDE(
    choir__etcd_plugin, choir__etcd_host, CHOIR__ETCD_LAYOUT, .open = choir__etcd_open);

CHOIR__BASE_HOST(CHOIR__THROUGH_HOST)
