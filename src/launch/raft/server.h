/* An agent's server among those that hold the ledger together: libraft, which decides, its
 * memory (memory.h), its messages (connections.h), the entries (entries.h), and a thread that
 * drives them.
 *
 * Each half second the server asks the leader to prove that it still leads, by an entry that a
 * majority confirms. Such a proof holds for the moment at which the question left. So an agent
 * without a proof for fence_s knows that the others may have begun to continue without it; and
 * a new leader, elected after the last proof of the old one, declares no agent gone before
 * lost_s, which is longer.
 *
 * Threads: any. */
#ifndef CHOIR_LAUNCH_RAFT_SERVER_H
#define CHOIR_LAUNCH_RAFT_SERVER_H

#include "launch/agent/agent.h"

typedef struct choir__raft_server choir__raft_server;

static const double choir__raft_fence_s = 2.8; /* silence after which an agent's workers end */
static const double choir__raft_lost_s =
    3.4; /* silence after which other agents continue without an agent */

/* Founds the cluster at the endpoint, or joins the one that is there. */
choir_status choir__raft_server_open(
    const choir__agent_opts *opts, double deadline, choir__raft_server **server);
/* over: the job is over; otherwise the others continue, and a leader makes sure that they can.
 */
void choir__raft_server_close(choir__raft_server *server, bool over);

/* This machine's address, as the others reach it. */
const char *choir__raft_server_self(const choir__raft_server *server);
/* Returns this agent's number among the agents. */
uint64_t choir__raft_server_id(const choir__raft_server *server);

/* Waits for entry n. TIMEOUT: it is not there. */
choir_status choir__raft_server_read(
    choir__raft_server *server, int64_t n, double wait_s, char **text);
/* Returns the number of the newest entry at this moment, which then can be read here. */
choir_status choir__raft_server_newest(
    choir__raft_server *server, double patience_s, int64_t *n);
choir_status choir__raft_server_append(
    choir__raft_server *server, int64_t n, const char *text, double patience_s, bool *mine);

/* Returns the number of agents that vote, by the last configuration that is known to be
 * decided. */
int choir__raft_server_voters(choir__raft_server *server);
/* Returns the age of the last proof. */
double choir__raft_server_silent_s(choir__raft_server *server);
/* Returns for how long an agent has been silent; 0 where this server does not lead; INFINITY:
 * it is gone. */
double choir__raft_server_quiet_s(choir__raft_server *server, uint64_t id);

#endif
