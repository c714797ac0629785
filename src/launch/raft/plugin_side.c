/* The plug-in's side of plugin.h: the exported table, and the functions of the host, which call
 * through the host's table. */
#include "launch/raft/plugin.h"

static const choir__raft_host *host;

static void start(const choir__raft_host *of)
{
    host = of;
}

extern const choir__raft_plugin choir_plugin;
__attribute__((visibility("default"))) const choir__raft_plugin choir_plugin = {
    .head = {CHOIR_VERSION, CHOIR__RAFT_LAYOUT},
    .start = start,
    .open = choir__raft_open,
};

#define X(type, name, parameters, arguments)                                                   \
    type name parameters                                                                       \
    {                                                                                          \
        return host->name arguments;                                                           \
    }
CHOIR__RAFT_HOST(X)
#undef X
