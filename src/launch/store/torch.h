/* A client of PyTorch's TCPStore, as far as a meeting needs it: torchrun's agent serves such a
 * store at MASTER_PORT, so rank 0 cannot. All functions are for one thread. */
#ifndef CHOIR_LAUNCH_STORE_TORCH_H
#define CHOIR_LAUNCH_STORE_TORCH_H

#include "base/base.h"

typedef struct choir__torch_store {
    int fd;
    bool old;        /* before PyTorch 2.1: the operations have other numbers */
    char where[300]; /* "node7:29500" */
} choir__torch_store;

/* Connects until the deadline (of choir__now). Errors: argument (the name), mismatch (the port
 * is another program's), timed out. */
choir_status choir__torch_open(
    const char *host, int port, double deadline, choir__torch_store *store);
void choir__torch_close(choir__torch_store *store); /* accepts a closed one */

/* choir__torch_get waits until the key exists, and copies at most room - 1 bytes of its value.
 * Close the store after an error: timed out, peer lost (the server has ended). */
choir_status choir__torch_set(
    choir__torch_store *store, const char *key, const char *value, double deadline);
choir_status choir__torch_delete(choir__torch_store *store, const char *key, double deadline);
choir_status choir__torch_get(
    choir__torch_store *store, const char *key, char *value, size_t room, double deadline);

#endif
