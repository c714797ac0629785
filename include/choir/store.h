/* The store: keys and values that the processes of a job share while they find each other.
 *
 * One process serves it (rank 0, or `choir run`), the others are its clients over TCP. Bound to
 * loopback unless told otherwise; outside loopback a key is needed: both sides prove that they
 * hold it, then the channel is encrypted. Keys are 1 to 255 bytes of text, values up to
 * CHOIR_STORE_VALUE_MAX bytes.
 *
 * Without a key a server talks to processes of its own user id alone, and a client to a server
 * of its own; where that cannot be told, they do not talk.
 *
 * Threads: any; a client's calls take turns, also while one waits. Neither a server nor a
 * client survives a fork: the child's copies are closed, and it may only free them. */
#ifndef CHOIR_STORE_H
#define CHOIR_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_STORE_VALUE_MAX = 1 << 20 };

typedef struct choir_store choir_store;
typedef struct choir_store_server choir_store_server;

typedef struct choir_store_opts {
    const char *key_file; /* mode 0600, at least 32 bytes; NULL: none, loopback only */
    int key_fd;           /* the same from a descriptor, read to its end; -1: none */
    const char *bind; /* server: the address to listen at; default "127.0.0.1". "unix:NAME": an
                         abstract Unix socket, for our own user id, without port and key */
    int port;         /* server: 0 takes a free one */
    int clients_max, keys_max; /* server: defaults 4096, 65536 */
    size_t bytes_max;          /* server: of all keys and values; default 256 MiB */
    double timeout_s;          /* client: to connect, and of calls that wait; default 300 */
} choir_store_opts;

choir_store_opts choir_store_defaults(void);

/** Serves a store from a thread of this process. Errors: argument (bound outside loopback
 *  without a key; a key file that others may read), I/O (a port in use: by whom, if it can be
 *  told). */
choir_status choir_store_serve(choir_store_opts opts, choir_store_server **server);
int choir_store_port(const choir_store_server *server);
void choir_store_server_free(choir_store_server *server); /* NULL is fine */

/** Connects, trying until the timeout while nobody listens; host may be "unix:NAME". Errors:
 * argument, timed out, mismatch (another key, or not a store). */
choir_status choir_store_connect(
    const char *host, int port, choir_store_opts opts, choir_store **store);
void choir_store_free(choir_store *store); /* says goodbye; NULL is fine */

/** Errors of this and the calls below: argument, memory (a cap of the server), peer lost, timed
 * out (the server is silent). */
choir_status choir_store_set(
    choir_store *store, const char *key, const void *value, size_t bytes);
/** Waits until there is one. *value (the caller frees it) has a zero byte behind it.
 *  timeout_s < 0: the client's; 0: does not wait. Errors: timed out, peer lost. */
choir_status choir_store_get(
    choir_store *store, const char *key, double timeout_s, char **value, size_t *bytes);
/** Until all keys are there. */
choir_status choir_store_wait(
    choir_store *store, const char *const *keys, int count, double timeout_s);
/** *sum = the number at key (0 if there is none) + amount, which becomes its value, as text. */
choir_status choir_store_add(choir_store *store, const char *key, int64_t amount, int64_t *sum);
/** Sets desired if the value is `expected` (NULL: if there is none). *value: what it is now. */
choir_status choir_store_compare_set(choir_store *store, const char *key, const char *expected,
    const char *desired, char **value);
choir_status choir_store_delete(choir_store *store, const char *key, bool *existed);

/** A last will: set by the server if this client goes without a goodbye (choir_store_free). */
choir_status choir_store_will(
    choir_store *store, const char *key, const void *value, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
