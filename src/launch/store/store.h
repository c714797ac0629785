/* The store from inside: with a key that does not come from a file, on a connection that is
 * there already.
 *
 *   protocol.h  what is said          channel.c  greeting and encryption, no I/O
 *   table.c     keys and values       session.c  a client's requests on the table, no I/O
 *   server.c    the thread, serve.c   connect.c, client.c, calls.c   the client
 *   net.c       sockets, addresses    peer.c     whose process is at the other end
 *   holder.c    who holds a port      proc_net.h the kernel's list of sockets
 *   key.c       the job's key         forked.c   what a forked child closes */
#ifndef CHOIR_LAUNCH_STORE_STORE_H
#define CHOIR_LAUNCH_STORE_STORE_H

#include <choir/store.h>
#include "launch/store/key.h"

/* As the public ones, with the key given (NULL: none) instead of looked for in opts.
 * serve: errno tells more of an I/O error. */
choir_status choir__store_serve(
    choir_store_opts opts, const choir__store_key *key, choir_store_server **server);
choir_status choir__store_connect(const char *host, int port, choir_store_opts opts,
    const choir__store_key *key, choir_store **store);

/* A client on a connected socket, which becomes the store's even on failure. where: its name in
 * messages. */
choir_status choir__store_over(int fd, const char *where, double timeout_s,
    const choir__store_key *key, choir_store **store);

/* Goes without a goodbye: the last wills are carried out. NULL is fine. */
void choir__store_abandon(choir_store *store);

/* The key that opts name. *given: there is one. */
choir_status choir__store_key_given(
    const choir_store_opts *opts, choir__store_key *key, bool *given);

/* The host under which this machine's processes reach it: "127.0.0.1", "unix:NAME". */
const char *choir__store_address(const choir_store_server *server, char host[160]);

/* Connected and greeted now. */
int choir__store_clients(choir_store_server *server);

/* Greetings that failed so far: wrong keys, no keys, garbage. */
long choir__store_failures(choir_store_server *server);

#endif
