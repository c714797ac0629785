/* Ledgers in plug-ins (base/plugin/plugin.h): choir_etcd.so, the ledger in etcd, because it
 * needs libcurl, and choir_raft.so, the ledger that the agents hold together, because it needs
 * libraft. */
#ifndef CHOIR_LAUNCH_AGENT_PLUGIN_H
#define CHOIR_LAUNCH_AGENT_PLUGIN_H

#include "base/plugin/plugin.h"
#include "launch/agent/ledger.h"
#include "launch/store/key.h"

/* The functions that they take of the host. The store's channel and sockets are built into
 * choir_raft.so once more. */
#define CHOIR__LEDGER_HOST(X)                                                                  \
    CHOIR__BASE_HOST(X)                                                                        \
    X(const char *, choir__why, (int error), (error))                                          \
    X(char *, choir__strdup, (const char *text), (text))                                       \
    X(choir_status, choir__host_port,                                                          \
        (const char *text, char name[CHOIR__HOST_TEXT], int *port), (text, name, port))        \
    X(choir_status, choir__store_key_read_file, (const char *path, choir__store_key *key),     \
        (path, key))

typedef struct choir__ledger_host {
#define X(type, name, parameters, arguments) type(*name) parameters;
    CHOIR__LEDGER_HOST(X)
#undef X
} choir__ledger_host;

/* The table that a plug-in exports, under the name choir_plugin. */
typedef struct choir__ledger_plugin {
    choir__plugin_head head;
    void (*start)(const choir__ledger_host *host);
    choir_status (*open)(const choir__agent_opts *opts, choir__ledger *first, double deadline,
        choir__ledger **ledger);
} choir__ledger_plugin;

#define CHOIR__LEDGER_LAYOUT                                                                   \
    ((uint32_t)(sizeof(choir__ledger_host) * 31 + sizeof(choir__agent_opts) * 7 +              \
                sizeof(choir__ledger) * 5 + sizeof(choir__ledger_ops)))

/* The plug-in's own function behind `open`. first: this agent's first object; NULL: this is
 * it. Errors: argument (etcd's login and certificate, too), mismatch, timed out, I/O. */
choir_status choir__ledger_plugged(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger);

#endif
