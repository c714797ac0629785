/* The two sides of a meeting: rank 0 serves it, the others call until rank 0 answers. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "launch/keeper.h"
#include "launch/meet/meet.h"
#include "launch/store/net.h"

/* Gives up. A rank that has joined and fails leaves its last will, so that the others do not
 * wait for it. */
static void leave(choir__joining *j)
{
    choir__meeting *m = j->meeting;
    if (j->joined)
        choir__store_abandon(m->store);
    else
        choir_store_free(m->store);
    choir_store_server_free(m->server);
    free(m->members);
    m->members = NULL;
    m->store = NULL;
    m->server = NULL;
}

/* Ranks whose agents continue without a machine find it gone as soon as the agents do. */
static double lost_after_s(void)
{
    return choir__keeper_is_there() ? choir__net_cut_off_s : 0;
}

choir_status choir__meet_host(
    choir__joining *joining, choir_store_opts opts, const choir__store_key *key)
{
    opts.lost_after_s = lost_after_s();
    choir__meeting *m = joining->meeting;
    choir__member self;
    char host[160];
    choir_status status = choir__store_serve(opts, key, &m->server);
    if (status != CHOIR_OK)
        return status;
    opts.timeout_s = m->timeout_s;
    choir__store_address(m->server, host);
    status = choir__store_connect(host, choir_store_port(m->server), opts, key, &m->store);
    choir__meet_self(&self);
    if (status == CHOIR_OK && joining->listening)
        status = joining->listening(joining, key);
    if (status == CHOIR_OK)
        status = choir__meet_lead(joining, &self);
    if (status != CHOIR_OK)
        leave(joining);
    return status;
}

choir_status choir__meet_host_everywhere(
    choir__joining *joining, choir_store_opts opts, const choir__store_key *key)
{
    opts.bind = "::"; /* IPv4 as well */
    choir_status status = choir__meet_host(joining, opts, key);
    if (status != CHOIR_ERR_IO || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return status;
    opts.bind = "0.0.0.0"; /* a system without IPv6 */
    return choir__meet_host(joining, opts, key);
}

choir__meet_result choir__meet_try(choir__joining *joining, const char *host, int port,
    double timeout_s, const choir__store_key *key, choir_status *status)
{
    choir__member self;
    bool again = false;
    choir_store_opts opts = choir_store_defaults();
    opts.timeout_s = timeout_s;
    opts.lost_after_s = lost_after_s();
    joining->joined = false;
    joining->root[0] = '\0';
    *status = choir__store_connect(host, port, opts, key, &joining->meeting->store);
    if (*status != CHOIR_OK)
        return CHOIR__MEET_UNREACHED;
    choir__meet_self(&self);
    *status = choir__meet_follow(joining, &self, &again);
    if (*status == CHOIR_OK && !again)
        return CHOIR__MEET_DONE;
    leave(joining);
    if (again)
        *status = choir__error(CHOIR_ERR_STATE,
            "rank 0 still serves an earlier group of this job at %s: free that one on all "
            "ranks first, or split it",
            joining->where);
    return again || (*status == CHOIR_ERR_PEER_LOST && !joining->joined) ? CHOIR__MEET_MISSED
                                                                         : CHOIR__MEET_FAILED;
}

choir_status choir__meet_call(
    choir__joining *joining, const char *host, int port, const choir__store_key *key)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (;;) {
        choir_status status;
        double left = joining->deadline - choir__now();
        choir__meet_result a =
            choir__meet_try(joining, host, port, left > 0 ? left : 0, key, &status);
        if (a == CHOIR__MEET_UNREACHED && status == CHOIR_ERR_TIMEOUT)
            return choir__error(status, "rank 0 never came within %g s: %s",
                joining->meeting->timeout_s, choir__plain_message(joining->meeting->rank));
        if (a != CHOIR__MEET_MISSED || choir__now() >= joining->deadline)
            return status;
        nanosleep(&pause, NULL);
    }
}
