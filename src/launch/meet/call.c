/* The ways to a meeting: rank 0 serves it, the others call until somebody answers. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "launch/meet/meet.h"

/* A rank that has come and fails leaves its last will: the others shall not wait for it. */
static void part(choir__venue *v)
{
    choir__meeting *m = v->meeting;
    if (v->seated)
        choir__store_abandon(m->store);
    else
        choir_store_free(m->store);
    choir_store_server_free(m->server);
    free(m->members);
    m->members = NULL;
    m->store = NULL;
    m->server = NULL;
}

choir_status choir__meet_host(choir__venue *venue, choir_store_opts opts, const choir__key *key)
{
    choir__meeting *m = venue->meeting;
    choir__member self;
    char host[160];
    choir_status status = choir__store_serve(opts, key, &m->server);
    if (status)
        return status;
    opts.timeout_s = m->timeout_s;
    choir__store_address(m->server, host);
    status = choir__store_connect(host, choir_store_port(m->server), opts, key, &m->store);
    choir__meet_self(&self);
    if (!status && venue->doors_open)
        status = venue->doors_open(venue, key);
    if (!status)
        status = choir__meet_preside(venue, &self);
    if (status)
        part(venue);
    return status;
}

choir_status choir__meet_host_everywhere(
    choir__venue *venue, choir_store_opts opts, const choir__key *key)
{
    opts.bind = "::"; /* IPv4 as well */
    choir_status status = choir__meet_host(venue, opts, key);
    if (status != CHOIR_ERR_IO || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL))
        return status;
    opts.bind = "0.0.0.0"; /* a system without IPv6 */
    return choir__meet_host(venue, opts, key);
}

choir__attendance choir__meet_try(choir__venue *venue, const char *host, int port,
    double timeout_s, const choir__key *key, choir_status *status)
{
    choir__member self;
    bool again = false;
    choir_store_opts opts = choir_store_defaults();
    opts.timeout_s = timeout_s;
    venue->seated = false;
    venue->root[0] = '\0';
    *status = choir__store_connect(host, port, opts, key, &venue->meeting->store);
    if (*status)
        return CHOIR__UNREACHED;
    choir__meet_self(&self);
    *status = choir__meet_attend(venue, &self, &again);
    if (!*status && !again)
        return CHOIR__MET;
    part(venue);
    if (again)
        *status = choir__error(CHOIR_ERR_STATE,
            "rank 0 still serves an earlier group of this job at %s: free that one on all "
            "ranks first, or split it",
            venue->where);
    return again || (*status == CHOIR_ERR_PEER_LOST && !venue->seated) ? CHOIR__MISSED
                                                                       : CHOIR__FAILED;
}

choir_status choir__meet_call(
    choir__venue *venue, const char *host, int port, const choir__key *key)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (;;) {
        choir_status status;
        double left = venue->deadline - choir__now();
        choir__attendance a =
            choir__meet_try(venue, host, port, left > 0 ? left : 0, key, &status);
        if (a == CHOIR__UNREACHED && status == CHOIR_ERR_TIMEOUT)
            return choir__error(status, "rank 0 never came within %g s: %s",
                venue->meeting->timeout_s, choir__plain_message(venue->meeting->rank));
        if (a != CHOIR__MISSED || choir__now() >= venue->deadline)
            return status;
        nanosleep(&pause, NULL);
    }
}
