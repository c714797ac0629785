/* Meeting under a torchrun whose agent serves a TCPStore at MASTER_PORT
 * (TORCHELASTIC_USE_AGENT_STORE): rank 0 cannot listen there.
 *
 * Rank 0 listens at a free port and writes the port into the agent's store; the others wait for
 * it there. The key names the run and the restart, since the store outlives a failed attempt:
 *
 *     choir/RUN_ID/RESTART_COUNT/port
 *
 * Rank 0 deletes the key once all have come, so that ranks of the job's next group wait for
 * the next port. After a meeting that failed the key is left: a rank that finds a port at which
 * no process listens reads it again. The store is not trusted: the server at that port must be
 * a process of this user, or prove that it has the job's key. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "base/options.h"
#include "launch/launchers.h"
#include "launch/meet/meet.h"
#include "launch/store/torch.h"

static const double answer_s = 2; /* for a port that may be a failed meeting's */
static const double delete_s = 5;

static const char *name_of_port(char name[300])
{
    const char *run = choir__variable("TORCHELASTIC_RUN_ID"),
               *restart = choir__variable("TORCHELASTIC_RESTART_COUNT");
    snprintf(name, 300, "choir/%.200s/%.20s/port", run ? run : "none", restart ? restart : "0");
    return name;
}

static choir_status open_store(double deadline, choir__torch_store *store)
{
    char host[CHOIR__HOST_TEXT];
    int port = 0;
    *store = (choir__torch_store){.fd = -1};
    choir_status status = choir__meet_master(host, &port);
    return status == CHOIR_OK ? choir__torch_open(host, port, deadline, store) : status;
}

/* Rank 0's server listens: publishes its port, and reads it back, so that it has arrived. */
static choir_status publish(choir__joining *j, const choir__store_key *key)
{
    choir__torch_store store;
    char name[300], port[16], back[16];
    (void)key;
    snprintf(port, sizeof port, "%d", choir_store_port(j->meeting->server));
    choir_status status = open_store(j->deadline, &store);
    if (status == CHOIR_OK)
        status = choir__torch_set(&store, name_of_port(name), port, j->deadline);
    if (status == CHOIR_OK)
        status = choir__torch_get(&store, name, back, sizeof back, j->deadline);
    choir__torch_close(&store);
    return status;
}

static void withdraw(choir__joining *j)
{
    choir__torch_store store;
    char name[300];
    double soon = choir__now() + delete_s;
    char *message = choir__strdup(choir__message()); /* the meeting's, if it has failed */
    (void)j;
    if (open_store(soon, &store) == CHOIR_OK)
        choir__torch_delete(&store, name_of_port(name), soon);
    choir__torch_close(&store);
    choir__set_message(message);
    free(message);
}

static choir_status find_port(choir__joining *j, choir__torch_store *store, int *port)
{
    char name[300], text[16];
    int64_t number;
    choir_status status =
        choir__torch_get(store, name_of_port(name), text, sizeof text, j->deadline);
    if (status == CHOIR_ERR_TIMEOUT)
        return choir__error(status,
            "rank 0 never came within %g s: it has left no address in torchrun's store at %s",
            j->meeting->timeout_s, store->where);
    if (status == CHOIR_OK && !choir__parse_int(text, 1, 65535, &number))
        return choir__error(CHOIR_ERR_MISMATCH,
            "torchrun's store at %s has '%s' under '%s': expected a port", store->where, text,
            name);
    if (status == CHOIR_OK)
        *port = (int)number;
    return status;
}

static choir_status call(
    choir__joining *j, const char *host, choir__torch_store *store, const choir__store_key *key)
{
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    for (;;) {
        int port = 0;
        choir_status status = find_port(j, store, &port);
        if (status != CHOIR_OK)
            return status;
        choir__meet_set_where(j, host, port);
        double left = j->deadline - choir__now();
        choir__meet_result a = choir__meet_try(j, host, port,
            left < 0          ? 0
            : left < answer_s ? left
                              : answer_s,
            key, &status);
        bool again = a == CHOIR__MEET_MISSED ||
                     (a == CHOIR__MEET_UNREACHED && status == CHOIR_ERR_TIMEOUT);
        if (!again || choir__now() >= j->deadline)
            return status;
        nanosleep(&pause, NULL);
    }
}

choir_status choir__meet_torchrun(
    choir__joining *j, const char *host, const choir__store_key *key)
{
    choir__torch_store store;
    if (j->meeting->rank == 0) {
        j->listening = publish;
        j->all_joined = withdraw;
        return choir__meet_host_at(j, host, 0, key);
    }
    choir_status status = open_store(j->deadline, &store);
    if (status == CHOIR_OK)
        status = call(j, host, &store, key);
    choir__torch_close(&store);
    return status;
}
