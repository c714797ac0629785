/* choir_etcd.so, the ledger in etcd: a plug-in (base/plugin/plugin.h), because it needs
 * libcurl. */
#ifndef CHOIR_LAUNCH_ETCD_PLUGIN_H
#define CHOIR_LAUNCH_ETCD_PLUGIN_H

#include "base/plugin/plugin.h"
#include "launch/agent/ledger.h"

typedef struct choir__etcd_host {
#define X(type, name, parameters, arguments) type(*name) parameters;
    CHOIR__BASE_HOST(X)
#undef X
} choir__etcd_host;

/* The table that the plug-in exports, under the name choir_plugin. */
typedef struct choir__etcd_plugin {
    choir__plugin_head head;
    void (*start)(const choir__etcd_host *host);
    choir_status (*open)(const choir__agent_opts *opts, bool first, choir__ledger **ledger);
} choir__etcd_plugin;

#define CHOIR__ETCD_LAYOUT                                                                     \
    ((uint32_t)(sizeof(choir__etcd_host) * 31 + sizeof(choir__agent_opts) * 7 +                \
                sizeof(choir__ledger) * 5 + sizeof(choir__ledger_ops)))

/* The plug-in's own function behind `open`. Errors: argument (the login, the certificate),
 * timed out, I/O. */
choir_status choir__etcd_open(
    const choir__agent_opts *opts, bool first, choir__ledger **ledger);

#endif
