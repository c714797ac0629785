/* The ledger that the agents hold together, by Raft (server.h).
 *
 * An agent's two objects share its server: each call is one of the server's. The leader
 * looks for the agents that are gone, and any agent may be lost, the one at the endpoint
 * included. An agent that has no proof that another agent leads stops its workers in time. */
#include <stdlib.h>

#include "launch/agent/plugin.h"
#include "launch/raft/server.h"

static const double call_s = 2;       /* for an answer */
static const double unproven_s = 1.2; /* without a proof: the leader may be lost */

typedef struct ledger {
    choir__ledger base;
    choir__raft_server *server;
    bool owns; /* the server: the agent's first object */
} ledger;

/* Notes how old the last proof is; a recent one is as good as none to wait for. */
static void listen(ledger *l)
{
    double silent_s = choir__raft_server_silent_s(l->server);
    l->base.silent_s = silent_s > unproven_s ? silent_s : 0;
    l->base.voters = choir__raft_server_voters(l->server);
}

static choir_status read_entry(choir__ledger *base, int64_t n, double wait_s, char **text)
{
    ledger *l = (ledger *)base;
    choir_status status = choir__raft_server_read(l->server, n, wait_s, text);
    listen(l);
    return status;
}

static choir_status newest(choir__ledger *base, int64_t *n)
{
    ledger *l = (ledger *)base;
    choir_status status = choir__raft_server_newest(l->server, call_s, n);
    listen(l);
    if (status == CHOIR_ERR_TIMEOUT && !(l->base.silent_s > 0))
        l->base.silent_s = unproven_s;
    return status;
}

static choir_status append(choir__ledger *base, int64_t n, const char *text, bool *mine)
{
    ledger *l = (ledger *)base;
    choir_status status = choir__raft_server_append(l->server, n, text, call_s, mine);
    listen(l);
    return status;
}

static choir_status live(choir__ledger *base, const char *id)
{
    (void)base; /* the server's thread says so from its beginning */
    (void)id;
    return CHOIR_OK;
}

/* The server's thread does it. */
static choir_status beat(choir__ledger *base)
{
    listen((ledger *)base);
    return CHOIR_OK;
}

static double quiet_s(choir__ledger *base, const char *id)
{
    ledger *l = (ledger *)base;
    return choir__raft_server_quiet_s(l->server, strtoull(id, NULL, 16));
}

static void close_ledger(choir__ledger *base, bool over)
{
    ledger *l = (ledger *)base;
    if (l->owns)
        choir__raft_server_close(l->server, over);
    free(l);
}

static const choir__ledger_ops ops = {
    .read = read_entry,
    .newest = newest,
    .append = append,
    .live = live,
    .beat = beat,
    .quiet_s = quiet_s,
    .close = close_ledger,
};

/* Waits until a leader answers; an agent that finds the ledger empty may write its first
 * entry. */
static choir_status await_leader(ledger *l, double deadline)
{
    int64_t n = 0;
    choir_status status;
    do
        status = newest(&l->base, &n);
    while (status == CHOIR_ERR_TIMEOUT && choir__now() < deadline);
    l->base.founds = status == CHOIR_OK && !n;
    return status;
}

choir_status choir__ledger_plugged(
    const choir__agent_opts *opts, choir__ledger *first, double deadline, choir__ledger **made)
{
    ledger *l = choir__calloc(1, sizeof *l), *other = (ledger *)first;
    choir_status status = CHOIR_OK;
    l->base = (choir__ledger){.ops = &ops, .fence_s = choir__raft_fence_s, .looks = true};
    l->owns = !first;
    if (first) {
        l->server = other->server;
        l->base.founds = first->founds;
    } else {
        status = choir__raft_server_open(opts, deadline, &l->server);
    }
    if (status == CHOIR_OK && !first) {
        status = await_leader(l, deadline);
        if (status != CHOIR_OK)
            choir__raft_server_close(l->server, true);
    }
    if (status != CHOIR_OK) {
        free(l);
        return status;
    }
    snprintf(l->base.id, sizeof l->base.id, "%016llx",
        (unsigned long long)choir__raft_server_id(l->server));
    snprintf(l->base.self, sizeof l->base.self, "%s", choir__raft_server_self(l->server));
    *made = &l->base;
    return CHOIR_OK;
}
