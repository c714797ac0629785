/* The plug-in's side of plugin.h: the exported table, and base's functions, which call through
 * the host's table. */
#include "launch/etcd/plugin.h"

static const choir__etcd_host *host;

static void start(const choir__etcd_host *of)
{
    host = of;
}

extern const choir__etcd_plugin choir_plugin;
__attribute__((visibility("default"))) const choir__etcd_plugin choir_plugin = {
    .head = {CHOIR_VERSION, CHOIR__ETCD_LAYOUT},
    .start = start,
    .open = choir__etcd_open,
};

#define X(type, name, parameters, arguments)                                                   \
    type name parameters                                                                       \
    {                                                                                          \
        return host->name arguments;                                                           \
    }
CHOIR__BASE_HOST(X)
#undef X
