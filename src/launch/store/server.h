/* The server: declarations shared by its thread (server.c) and the functions that start and
 * stop it (serve.c). */
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
    int fd;             /* -1: closed */
    uint32_t events;    /* registered with epoll */
    bool open, leaving; /* greeted; to be disconnected once `out` is sent */
    bool shut;          /* disconnected */
    size_t held;        /* received bytes of a frame that is not complete */
    double deadline;    /* while it is on `waiting` */
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
    bool forked; /* a child's copy, which has no thread */
    int listener, epoll, stop;
    int port, clients_max;
    double lost_after_s;
    size_t held;         /* bytes held by all clients */
    bool stopping, deaf; /* deaf: accepts no connections until hears_at */
    double hears_at;
    choir__store_key *key; /* NULL: none */
    choir__hub hub;
    choir__failures failures;
    choir__clients waiting, open, gone; /* waiting: in the order of deadlines */
};

/* The thread's function; arg is the server. */
void *choir__server_run(void *arg);

/* Removes a client from its list. */
void choir__client_leave(choir__client *client);

#endif
