/* Joining: ranks that have met open a net, with endpoints to all.
 *
 * Each rank writes two addresses of its worker into the store: one with all ways to reach it,
 * for ranks of the same machine, and one of the network alone. UCX by itself would take two
 * containers or network namespaces of one kernel for one machine.
 *
 * A rank that waits for an address checks ten times a second whether the net can still come
 * about. The first to find that it cannot writes the reason, and all ranks end with that
 * sentence: so a rank that gives up is not mistaken for the one that died. Rank 0 keeps the
 * store; if the store falls silent or disappears, so has rank 0.
 *
 *     PREFIX/near/R, PREFIX/far/R    rank R's addresses
 *     PREFIX/dead                    last will of every rank
 *     PREFIX/fault                   "-41 rank 3 ...": why there will be no net */
#include "comm/ucx/ucx.h"
#include "base/process/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double look_s = 0.1; /* how often a waiting rank checks the others */
/* less than the 5 s after which the store's client gives up */
static const double silence_s = 4.5;
/* until a process whose connections are closed has surely ended */
static const double certain_s = 0.5;

typedef struct joining {
    choir__ucx_net *net;
    const choir__meeting *meeting;
    double until;
} joining;

static const char *key_of(const choir__ucx_net *net, const char *what, char key[128])
{
    snprintf(key, 128, "%s/%s", net->prefix, what);
    return key;
}

/* --- failures --- */

static choir_status adopt(const char *fault)
{
    char *words;
    long status = strtol(fault, &words, 10);
    choir__error((choir_status)status, "%s", *words ? words + 1 : words);
    return status < 0 ? (choir_status)status : CHOIR_ERR_INTERNAL;
}

/* Makes the sentence every rank's, unless another rank was first; then this rank adopts that
 * one. */
static choir_status fail(const joining *j, choir_status status, const char *sentence)
{
    char key[128], text[600], *now = NULL;
    snprintf(text, sizeof text, "%d %s", (int)status, sentence);
    if (choir_store_compare_set(
            j->net->store, key_of(j->net, "fault", key), NULL, text, &now) != CHOIR_OK ||
        !now)
        return choir__error(status, "%s", sentence);
    status = adopt(now);
    free(now);
    return status;
}

/* The store does not answer, so the failure cannot be shared: each rank reports rank 0. */
static choir_status fell_silent(const joining *j)
{
    const choir__member *root = &j->meeting->members[0];
    return choir__error(CHOIR_ERR_TIMEOUT,
        "rank 0 (pid %d on %s), which keeps the store, stopped answering while the ranks "
        "opened backend 'ucx': was its process stopped?",
        root->pid, root->host);
}

/* --- ended processes --- */

/* Opens pidfds of the processes on this machine. */
static void watch_processes(const joining *j)
{
    const choir__member *all = j->meeting->members;
    for (int r = 0; r < j->net->world; r++) {
        choir__ucx_far *far = &j->net->far[r];
        if (r == j->net->rank || strcmp(all[r].machine, all[j->net->rank].machine) != 0)
            continue;
        far->pid_fd = choir__process_watch(all[r].pid);
        far->gone = far->pid_fd < 0 && errno == ESRCH;
    }
}

bool choir__ucx_gone(const choir__ucx_far *far)
{
    struct pollfd process = {.fd = far->pid_fd, .events = POLLIN};
    return far->gone || (process.fd >= 0 && poll(&process, 1, 0) == 1);
}

/* Returns the lowest rank whose process on this machine has ended; -1: none. */
static int find_gone(choir__ucx_net *net)
{
    for (int r = 0; r < net->world; r++)
        if (choir__ucx_gone(&net->far[r]))
            return r;
    return -1;
}

static const char *death_of(const joining *j, int rank, char text[300])
{
    const choir__member *who = &j->meeting->members[rank];
    snprintf(text, 300, "rank %d (pid %d on %s) died while the ranks opened backend 'ucx'",
        rank, who->pid, who->host);
    return text;
}

/* Reports a lost store: rank 0, which kept it, has gone, too, or will in a moment. */
static choir_status lost_the_store(const joining *j)
{
    const choir__member *root = &j->meeting->members[0];
    const choir__ucx_far *far = &j->net->far[0];
    char text[300];
    for (double until = choir__now() + certain_s;
         choir__now() < until && !choir__ucx_gone(far);)
        poll(NULL, 0, 10);
    if (choir__ucx_gone(far))
        return choir__error(CHOIR_ERR_PEER_LOST, "%s", death_of(j, 0, text));
    return choir__error(CHOIR_ERR_PEER_LOST,
        "rank 0 (pid %d on %s), which keeps the store, has gone while the ranks opened backend "
        "'ucx', or the way to it",
        root->pid, root->host);
}

/* Explains a failed call of the store. */
static choir_status of_store(const joining *j, choir_status status)
{
    return status == CHOIR_ERR_TIMEOUT     ? fell_silent(j)
           : status == CHOIR_ERR_PEER_LOST ? lost_the_store(j)
                                           : status;
}

/* Waits up to wait_s for the key's value; *value NULL: none. */
static choir_status look_at(const joining *j, const char *key, double wait_s, char **value)
{
    double since = choir__now();
    *value = NULL;
    choir_status status = choir_store_get(j->net->store, key, wait_s, value, NULL);
    if (status == CHOIR_ERR_TIMEOUT && choir__now() - since < wait_s + silence_s)
        return CHOIR_OK;
    return of_store(j, status);
}

/* Not CHOIR_OK if there will be no net; the error says why. */
static choir_status look_around(const joining *j)
{
    char key[128], text[300], *value;
    choir_status status = look_at(j, key_of(j->net, "fault", key), 0, &value);
    if (status == CHOIR_OK && value)
        status = adopt(value);
    free(value);
    if (status != CHOIR_OK)
        return status;
    int dead = find_gone(j->net);
    if (dead < 0) {
        status = look_at(j, key_of(j->net, "dead", key), 0, &value);
        dead = value ? atoi(value) : -1;
        free(value);
    }
    if (status != CHOIR_OK || dead < 0 || dead >= j->net->world)
        return status;
    return fail(j, CHOIR_ERR_PEER_LOST, death_of(j, dead, text));
}

/* Names the ranks whose addresses did not come. */
static choir_status missing(const joining *j)
{
    char who[200] = "", key[128], text[400], *value;
    size_t used = 0;
    int count = 0;
    for (int r = 0; r < j->net->world && used + 16 < sizeof who; r++) {
        snprintf(key, sizeof key, "%s/far/%d", j->net->prefix, r);
        choir_status status = look_at(j, key, 0, &value);
        if (status != CHOIR_OK)
            return status;
        if (!value)
            used += (size_t)snprintf(who + used, sizeof who - used, count++ ? ", %d" : "%d", r);
        free(value);
    }
    snprintf(text, sizeof text,
        "rank%s %s did not open backend 'ucx' within %g s: is it the same on all ranks?",
        count == 1 ? "" : "s", who, j->meeting->timeout_s);
    return fail(j, CHOIR_ERR_TIMEOUT, text);
}

/* --- addresses --- */

static choir_status publish(const joining *j, bool network_only)
{
    choir__ucx_net *net = j->net;
    ucp_worker_attr_t worker = {
        .field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS,
        .address_flags = network_only ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0,
    };
    char key[128];
    ucs_status_t s = ucp_worker_query(net->worker, &worker);
    if (s != UCS_OK)
        return choir__ucx_trouble("no address", s);
    snprintf(
        key, sizeof key, "%s/%s/%d", net->prefix, network_only ? "far" : "near", net->rank);
    choir_status status =
        choir_store_set(net->store, key, worker.address, worker.address_length);
    ucp_worker_release_address(net->worker, worker.address);
    return of_store(j, status);
}

/* Waits for the address of a rank. Fails once it is clear that there will be none. */
static choir_status await_address(const joining *j, const char *key, char **address)
{
    for (;;) {
        double left = j->until - choir__now();
        double slice = left > look_s ? look_s : left > 0 ? left : 0;
        choir_status status = look_at(j, key, slice, address);
        if (status != CHOIR_OK || *address)
            return status;
        status = look_around(j);
        if (status != CHOIR_OK)
            return status;
        if (choir__now() >= j->until)
            return missing(j);
    }
}

static void on_loss(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    choir__ucx_net *net = arg;
    for (int r = 0; r < net->world; r++)
        if (net->far[r].ep == ep && net->far[r].lost == UCS_OK) {
            net->far[r].lost = status;
            net->losses++;
        }
}

static choir_status connect_to(const joining *j, int rank)
{
    choir__ucx_net *net = j->net;
    const choir__member *me = &j->meeting->members[net->rank];
    const choir__member *they = &j->meeting->members[rank];
    bool near = strcmp(me->machine, they->machine) == 0;
    char key[128], *address;
    snprintf(key, sizeof key, "%s/%s/%d", net->prefix, near ? "near" : "far", rank);
    choir_status status = await_address(j, key, &address);
    if (status != CHOIR_OK)
        return status;
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (ucp_address_t *)address,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = on_loss, .arg = net},
    };
    ucs_status_t s = ucp_ep_create(net->worker, &params, &net->far[rank].ep);
    free(address);
    if (s != UCS_OK)
        return choir__error(CHOIR_ERR_IO, "UCX: no way to reach rank %d (pid %d on %s): %s",
            rank, they->pid, they->host, ucs_status_string(s));
    return CHOIR_OK;
}

/* --- joining --- */

/* Counts this rank's openings, so that groups which the same ranks open one after another use
 * different keys. */
static choir_status choose_prefix(const joining *j)
{
    choir__ucx_net *net = j->net;
    char key[64];
    int64_t times;
    snprintf(key, sizeof key, "ucx/opened/%d", net->rank);
    choir_status status = choir_store_add(net->store, key, 1, &times);
    if (status == CHOIR_OK)
        snprintf(net->prefix, sizeof net->prefix, "ucx/%lld", (long long)times);
    return of_store(j, status);
}

static choir_status leave_will(const joining *j)
{
    char key[128], rank[16];
    snprintf(rank, sizeof rank, "%d", j->net->rank);
    return of_store(
        j, choir_store_will(j->net->store, key_of(j->net, "dead", key), rank, strlen(rank)));
}

choir_status choir__ucx_join(choir__ucx_net *net, const choir__meeting *meeting)
{
    const joining j = {net, meeting, choir__now() + meeting->timeout_s};
    watch_processes(&j);
    choir_status status = choose_prefix(&j);
    if (status == CHOIR_OK)
        status = leave_will(&j);
    if (status == CHOIR_OK)
        status = publish(&j, false);
    if (status == CHOIR_OK)
        status = publish(&j, true);
    for (int r = 0; r < net->world && status == CHOIR_OK; r++)
        status = connect_to(&j, r);
    return status;
}
