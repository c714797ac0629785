/* The choice of a job's ledger; etcd's is in a plug-in. */
#include "launch/agent/ledger.h"

#include <string.h>
#include <time.h>

#include "launch/etcd/plugin.h"

static const double answer_s = 10; /* for a server that should be there already */

static const choir__etcd_host host = {
#define X(type, name, parameters, arguments) .name = name,
    CHOIR__BASE_HOST(X)
#undef X
};

/* Opens etcd's ledger, and tries again while etcd does not answer. */
static choir_status open_etcd(
    const choir__agent_opts *opts, bool first, double deadline, choir__ledger **ledger)
{
    const choir__plugin_head *head;
    struct timespec moment = {.tv_nsec = 200000000};
    choir_status status = choir__plugin_load("etcd", "--rdzv-backend etcd is",
        "libcurl4-openssl-dev before the build, libcurl4 after it", CHOIR__ETCD_LAYOUT, &head);
    if (status != CHOIR_OK)
        return status;
    const choir__etcd_plugin *plugin = (const choir__etcd_plugin *)head;
    plugin->start(&host);
    if (deadline > choir__now() + answer_s)
        deadline = choir__now() + answer_s;
    while ((status = plugin->open(opts, first, ledger)) == CHOIR_ERR_TIMEOUT &&
           choir__now() < deadline)
        nanosleep(&moment, NULL);
    return status;
}

choir_status choir__ledger_open(
    const choir__agent_opts *opts, bool first, double deadline, choir__ledger **ledger)
{
    return opts->etcd.is_used ? open_etcd(opts, first, deadline, ledger)
                              : choir__ledger_store(opts, first, deadline, ledger);
}
