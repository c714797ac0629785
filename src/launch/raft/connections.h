/* The connections among the agents of a job. Each is a channel of the store's kind
 * (store/channel.h), which proves the job's key and encrypts, or without a key belongs to
 * processes of one user. An agent is known by a random number; a connection begins with a hello
 * in each direction, which says it.
 *
 * Messages are sent on any open connection, and lost without one: Raft repeats
 * its own, and so does the server its requests.
 *
 * Threads: one. */
#ifndef CHOIR_LAUNCH_RAFT_CONNECTIONS_H
#define CHOIR_LAUNCH_RAFT_CONNECTIONS_H

#include "launch/process/job.h"
#include "launch/store/key.h"

enum {
    CHOIR__CONNECTION_ADDRESS = CHOIR__HOST_TEXT + 16
}; /* "10.0.0.5:29400", "[::1]:29400" */

typedef struct choir__connections_user {
    void (*came)(void *arg, uint64_t from, const uint8_t *message, size_t bytes);
    /* The last connection with an agent has ended, by the agent's own kernel: it is dead. */
    void (*gone)(void *arg, uint64_t id);
    void *arg;
} choir__connections_user;

typedef struct choir__connections choir__connections;

/* Listens at host and port; 0: any port. key NULL: none. Errors: argument, I/O. */
choir_status choir__connections_open(const char *host, int port, const choir__store_key *key,
    uint64_t self, choir__connections_user user, choir__connections **connections);
void choir__connections_close(choir__connections *connections); /* accepts NULL */
int choir__connections_port(const choir__connections *connections);

/* Sets the address at which others reach this agent, which its hellos say. */
void choir__connections_name(choir__connections *connections, const char *address);

/* Calls an agent whose number is not known yet, and waits for its hello. self: this machine's
 * address, as seen from there. Errors: timed out, mismatch (the key, another program),
 * argument. */
choir_status choir__connections_find(choir__connections *connections, const char *host,
    int port, double deadline, uint64_t *id, char self[CHOIR__HOST_TEXT]);

/* Sends; false: there is no connection with `id` yet, and one begins. */
bool choir__connections_send(choir__connections *connections, uint64_t id, const char *address,
    const void *message, size_t bytes);

/* Begins a connection with `id` unless one exists. */
void choir__connections_keep(choir__connections *connections, uint64_t id, const char *address);

/* Returns the address that an agent's hello gave, or NULL. */
const char *choir__connections_address(const choir__connections *connections, uint64_t id);

/* Waits for messages, at most so long or until `wake` is readable, and passes them on. */
void choir__connections_poll(choir__connections *connections, double wait_s, int wake);

#endif
