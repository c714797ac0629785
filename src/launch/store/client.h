/* A client: what connect.c, client.c and calls.c share. */
#ifndef CHOIR_LAUNCH_STORE_CLIENT_H
#define CHOIR_LAUNCH_STORE_CLIENT_H

#include <pthread.h>

#include "launch/store/channel.h"
#include "launch/store/forked.h"
#include "launch/store/store.h"

/* The server's own time, over that for which a call waits. */
#define CHOIR__STORE_SLACK_S 5.0

struct choir_store {
    pthread_mutex_t lock;
    choir__forkable forkable;
    bool forked; /* a child's copy: its connection is the parent's */
    int fd;
    choir__channel channel;
    uint32_t seq;
    double timeout_s;
    choir_status failed; /* sticks */
    char where[200], why[300];
};

typedef enum choir__store_progress {
    CHOIR__LATE,
    CHOIR__CAME,
    CHOIR__GONE
} choir__store_progress;

/* Sends what can be sent, and waits until something came. */
choir__store_progress choir__store_move(choir_store *store, double deadline);

/* Closes and frees. */
void choir__store_dismantle(choir_store *store);

/* Takes the turn, if the connection still holds. */
choir_status choir__store_enter(choir_store *store);
void choir__store_leave(choir_store *store);

/* One request and its reply, whose value holds until the next; between enter and leave. */
choir_status choir__store_talk(choir_store *store, choir__store_op op, int64_t number,
    const choir__store_field *fields, int count, double patience_s, choir__store_reply *reply);

#endif
