/* The store's internal interface: with a key that does not come from a file, and on a
 * connection that already exists.
 *
 *   protocol.h  the messages          channel.c  greeting and encryption, no I/O
 *   table.c     keys and values       session.c  a client's requests on the table, no I/O
 *   server.c    the thread, serve.c   connect.c, client.c, calls.c   the client
 *   net.c       sockets, addresses    peer.c     the owner of a connection's other end
 *   holder.c    the holder of a port  proc_net.h the kernel's list of sockets
 *   key.c       the job's key */
#ifndef CHOIR_LAUNCH_STORE_STORE_H
#define CHOIR_LAUNCH_STORE_STORE_H

#include <choir/store.h>
#include "launch/store/key.h"

/* Like the public functions, but with an explicit key (NULL: none) instead of the one in opts.
 * After an I/O error of choir__store_serve, errno has details. */
choir_status choir__store_serve(
    choir_store_opts opts, const choir__store_key *key, choir_store_server **server);
choir_status choir__store_connect(const char *host, int port, choir_store_opts opts,
    const choir__store_key *key, choir_store **store);

/* Makes a client on a connected socket, which the store owns even after a failure. where: its
 * name in messages. For tests, which speak for the server. */
choir_status choir__store_over(int fd, const char *where, double timeout_s,
    const choir__store_key *key, choir_store **store);

/* Closes without a goodbye, so that the server carries out the wills. Accepts NULL. */
void choir__store_abandon(choir_store *store);

/* Reads the key that opts names into *key, which choir__store_key_free frees; NULL: opts names
 * none. */
choir_status choir__store_key_given(const choir_store_opts *opts, choir__store_key **key);

/* Returns the host under which this machine's processes reach the server: "127.0.0.1",
 * "unix:NAME". */
const char *choir__store_address(const choir_store_server *server, char host[160]);

/* Returns the number of clients that are connected and greeted. */
int choir__store_clients(choir_store_server *server);

/* Failed greetings so far. */
typedef struct choir__store_failed {
    long keys;      /* another key, or one side has none */
    long strangers; /* other users' processes, and programs that are no clients */
} choir__store_failed;
choir__store_failed choir__store_failures(choir_store_server *server);

#endif
