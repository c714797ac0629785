/* The choice of a job's ledger; etcd's and Raft's are in plug-ins. */
#include "launch/agent/plugin.h"

#define X(type, name, parameters, arguments) .name = name,
static const choir__ledger_host host = {CHOIR__LEDGER_HOST(X)};
#undef X

choir_status choir__ledger_open(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger)
{
    const choir__plugin_head *head;
    if (!opts->etcd.is_used && !opts->raft)
        return choir__ledger_store(opts, first, deadline, ledger);
    choir_status status = opts->etcd.is_used
                              ? choir__plugin_load("etcd", "--rdzv-backend etcd is",
                                    "libcurl4-openssl-dev before the build, libcurl4 after it",
                                    CHOIR__LEDGER_LAYOUT, &head)
                              : choir__plugin_load("raft", "--rdzv-backend raft is",
                                    "libraft-dev before the build, libraft2 after it",
                                    CHOIR__LEDGER_LAYOUT, &head);
    if (status != CHOIR_OK)
        return status;
    const choir__ledger_plugin *plugin = (const choir__ledger_plugin *)head;
    plugin->start(&host);
    return plugin->open(opts, first, deadline, ledger);
}
