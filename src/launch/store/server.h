/* The server: what its thread (server.c) and who starts and stops it (serve.c) share. */
#ifndef CHOIR_LAUNCH_STORE_SERVER_H
#define CHOIR_LAUNCH_STORE_SERVER_H

#include <pthread.h>

#include "launch/store/failures.h"
#include "launch/store/forked.h"
#include "launch/store/session.h"
#include "launch/store/store.h"

typedef struct choir__client {
    choir__session session;
    struct choir__client *next, *prev;
    struct choir__clients *list;
    int fd;             /* -1: gone */
    uint32_t events;    /* epoll's */
    bool open, leaving; /* greeted; hung up on, once `out` is sent */
    bool shut;          /* it was */
    double deadline;    /* while it is waiting */
    uint64_t from;
} choir__client;

typedef struct choir__clients {
    choir__client *first, *last;
    int count;
} choir__clients;

struct choir_store_server {
    pthread_t thread;
    pthread_mutex_t lock;
    choir__forkable forkable;
    bool forked; /* this is a child's copy: there is no thread */
    int listener, epoll, stop;
    int port, clients_max;
    bool keyed, stopping, deaf; /* deaf: not accepting, until hears_at */
    double hears_at;
    choir__store_key key;
    choir__hub hub;
    choir__failures failures;
    choir__clients waiting, open, gone; /* waiting: in the order of their deadlines */
};

/* The thread; arg: the server. */
void *choir__server_run(void *arg);

/* Takes a client off its list. */
void choir__client_leave(choir__client *client);

#endif
