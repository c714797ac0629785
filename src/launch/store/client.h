/* The client of a store: declarations shared by connect.c, client.c and calls.c. */
#ifndef CHOIR_LAUNCH_STORE_CLIENT_H
#define CHOIR_LAUNCH_STORE_CLIENT_H

#include <pthread.h>

#include "base/process/forks.h"
#include "launch/store/channel.h"
#include "launch/store/store.h"

/* Extra time for the server to answer, on top of the time for which a call waits. */
#define CHOIR__STORE_SLACK_S 5.0

struct choir_store {
    pthread_mutex_t lock;
    choir__forkable forkable;
    bool forked; /* true in a forked child: the connection belongs to the parent */
    int fd;
    choir__channel channel;
    uint32_t seq;
    double timeout_s;
    choir_status failed; /* the first failure, which is permanent */
    char where[200], why[300];
};

typedef enum choir__store_progress {
    CHOIR__LATE,
    CHOIR__CAME,
    CHOIR__GONE
} choir__store_progress;

/* Sends as much as possible, and waits until something arrives. */
choir__store_progress choir__store_move(choir_store *store, double deadline);

/* Closes the connection and frees the store. */
void choir__store_dismantle(choir_store *store);

/* Locks the store, if the connection still stands. */
choir_status choir__store_enter(choir_store *store);
void choir__store_leave(choir_store *store);

/* Sends one request and receives its reply, whose value is valid until the next request. Called
 * between enter and leave. */
choir_status choir__store_talk(choir_store *store, choir__store_op op, int64_t number,
    const choir__store_field *fields, int count, double patience_s, choir__store_reply *reply);

#endif
