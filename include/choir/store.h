/* The store: keys and values that the processes of a job share while they find each other.
 *
 * One process serves the store (rank 0, or `choir run`); the others are its clients over TCP.
 * The server listens on loopback unless opts.bind names another address. Outside loopback a key
 * is required: both sides prove that they hold it, then the channel is encrypted. Keys are 1 to
 * 255 bytes of text, values up to CHOIR_STORE_VALUE_MAX bytes.
 *
 * Without a key, servers and clients accept only peers with their own user id, and refuse peers
 * whose user id is unknown.
 *
 * Threads: any; a client's calls take turns, also while one of them waits. Neither a server
 * nor a client survives a fork: the child's copies are closed, and the child may only free
 * them. */
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
    const char *key_file; /* file with the key, mode 0600, at least 32 bytes; NULL: no key,
                             loopback only */
    int key_fd;           /* descriptor from which the key is read, up to the end; -1: none */
    /* server: the address to listen at; default "127.0.0.1". "unix:NAME": an abstract Unix
     * socket, for the server's own user id, without port and key */
    const char *bind;
    int port;                  /* server: 0 takes a free one */
    int clients_max, keys_max; /* server: defaults 4096, 65536 */
    size_t bytes_max;          /* server: total of keys and values; default 256 MiB */
    double timeout_s; /* client: for connecting, and for calls that wait; default 300 */
    /* seconds until a machine that is cut off counts as gone; 0: about half a minute */
    double lost_after_s;
} choir_store_opts;

choir_store_opts choir_store_defaults(void);

/** Serves a store from a thread of this process. Errors: argument (bound outside loopback
 * without a key; a key file that others may read), I/O (a port in use, naming its process if
 * it is known). */
CHOIR_CHECKED choir_status choir_store_serve(
    choir_store_opts opts, choir_store_server **server);
int choir_store_port(const choir_store_server *server);
void choir_store_server_free(choir_store_server *server); /* NULL is fine */

/** Connects, and retries until the timeout while no server listens; host may be "unix:NAME".
 * Errors: argument, timed out, mismatch (another key, or not a store). */
CHOIR_CHECKED choir_status choir_store_connect(
    const char *host, int port, choir_store_opts opts, choir_store **store);
void choir_store_free(choir_store *store); /* leaves in order: no last will; NULL is fine */

/** Sets the value of a key. Errors of this and the calls below: argument, memory (a cap of the
 * server), peer lost, timed out (the server is silent). */
CHOIR_CHECKED choir_status choir_store_set(
    choir_store *store, const char *key, const void *value, size_t bytes);
/** Waits until the key exists and returns its value, followed by a zero byte, in *value, which
 * the caller frees. timeout_s < 0: the client's timeout; 0: does not wait. Errors: timed out,
 * peer lost. */
CHOIR_CHECKED choir_status choir_store_get(
    choir_store *store, const char *key, double timeout_s, char **value, size_t *bytes);
/** Waits until all keys exist. */
CHOIR_CHECKED choir_status choir_store_wait(
    choir_store *store, const char *const *keys, int count, double timeout_s);
/** Adds amount to the number at key (0 if it does not exist), stores the sum as text, and
 * returns it in *sum. */
CHOIR_CHECKED choir_status choir_store_add(
    choir_store *store, const char *key, int64_t amount, int64_t *sum);
/** Sets the value to `desired` if it is `expected` (NULL: if the key does not exist). *value
 * receives the value after the call. */
CHOIR_CHECKED choir_status choir_store_compare_set(choir_store *store, const char *key,
    const char *expected, const char *desired, char **value);
CHOIR_CHECKED choir_status choir_store_delete(
    choir_store *store, const char *key, bool *existed);

/** Registers a last will: the server sets the key if this client disappears without
 * choir_store_free. */
CHOIR_CHECKED choir_status choir_store_will(
    choir_store *store, const char *key, const void *value, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
