/* The choice of a job's ledger; etcd's and Raft's are in plug-ins. */
#include "launch/agent/ledger.h"

#include <string.h>
#include <time.h>

#include "launch/etcd/plugin.h"
#include "launch/raft/plugin.h"

static const double answer_s = 10; /* for a server that should be there already */

#define X(type, name, parameters, arguments) .name = name,
static const choir__etcd_host etcd_host = {CHOIR__BASE_HOST(X)};
static const choir__raft_host raft_host = {CHOIR__RAFT_HOST(X)};
#undef X

/* Opens etcd's ledger, and tries again while etcd does not answer. */
static choir_status open_etcd(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger)
{
    const choir__plugin_head *head;
    struct timespec moment = {.tv_nsec = 200000000};
    choir_status status = choir__plugin_load("etcd", "--rdzv-backend etcd is",
        "libcurl4-openssl-dev before the build, libcurl4 after it", CHOIR__ETCD_LAYOUT, &head);
    if (status != CHOIR_OK)
        return status;
    const choir__etcd_plugin *plugin = (const choir__etcd_plugin *)head;
    plugin->start(&etcd_host);
    if (deadline > choir__now() + answer_s)
        deadline = choir__now() + answer_s;
    while ((status = plugin->open(opts, !first, ledger)) == CHOIR_ERR_TIMEOUT &&
           choir__now() < deadline)
        nanosleep(&moment, NULL);
    return status;
}

static choir_status open_raft(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger)
{
    const choir__plugin_head *head;
    choir_status status = choir__plugin_load("raft", "--rdzv-backend raft is",
        "libraft-dev before the build, libraft2 after it", CHOIR__RAFT_LAYOUT, &head);
    if (status != CHOIR_OK)
        return status;
    const choir__raft_plugin *plugin = (const choir__raft_plugin *)head;
    plugin->start(&raft_host);
    return plugin->open(opts, first, deadline, ledger);
}

choir_status choir__ledger_open(const choir__agent_opts *opts, choir__ledger *first,
    double deadline, choir__ledger **ledger)
{
    if (opts->etcd.is_used)
        return open_etcd(opts, first, deadline, ledger);
    return opts->raft ? open_raft(opts, first, deadline, ledger)
                      : choir__ledger_store(opts, first, deadline, ledger);
}
