/* The client's connection, which the calls (calls.c) use one at a time.
 *
 * Every request has a number, and replies to earlier requests are skipped: so the connection
 * remains usable after a call that timed out. A failure of the connection itself is
 * permanent. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "launch/store/client.h"
#include "launch/store/net.h"
#include "launch/store/store.h"

static const double goodbye_s = 2; /* how long to wait for the server's answer */

/* --- moving bytes --- */

choir__store_progress choir__store_move(choir_store *store, double deadline)
{
    choir__bytes *out = &store->channel.out, *in = &store->channel.in;
    /* the server accepts nothing any more; its last reply may still arrive */
    bool deaf = false;
    for (;;) {
        while (choir__bytes_left(out) && !deaf) {
            ssize_t n =
                send(store->fd, choir__bytes_front(out), choir__bytes_left(out), MSG_NOSIGNAL);
            if (n > 0)
                choir__bytes_skip(out, (size_t)n);
            else if (errno == EAGAIN || errno == EWOULDBLOCK)
                break;
            else if (errno != EINTR)
                deaf = true;
        }
        enum { READ_BYTES = 16 * 1024 };
        ssize_t n = recv(store->fd, choir__bytes_grow(in, READ_BYTES), READ_BYTES, 0);
        if (n > 0) {
            in->to += (size_t)n;
            return CHOIR__CAME;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return CHOIR__GONE;
        short events = (short)(POLLIN | (choir__bytes_left(out) && !deaf ? POLLOUT : 0));
        if (!choir__net_await(store->fd, events, deadline))
            return CHOIR__LATE;
    }
}

static choir_status fail(choir_store *store, choir_status status, const char *why)
{
    store->failed = status;
    snprintf(store->why, sizeof store->why, "%s", why);
    return choir__error(status, "%s", why);
}

static choir_status lost(choir_store *store)
{
    char why[300];
    snprintf(why, sizeof why, "the store at %s has gone", store->where);
    return fail(store, CHOIR_ERR_PEER_LOST, why);
}

/* --- talking --- */

static void put_request(choir_store *store, choir__store_op op, int64_t number,
    const choir__store_field *fields, int count)
{
    uint8_t head[CHOIR__STORE_HEAD] = {(uint8_t)op}, length[4];
    choir__bytes request = {0};
    choir__put16(head + 2, (uint16_t)count);
    choir__put32(head + 4, ++store->seq);
    choir__put64(head + 8, (uint64_t)number);
    choir__bytes_put(&request, head, sizeof head);
    for (int i = 0; i < count; i++) {
        choir__put32(length, fields[i].bytes);
        choir__bytes_put(&request, length, sizeof length);
        choir__bytes_put(&request, fields[i].data, fields[i].bytes);
    }
    choir__channel_put(&store->channel, request.data, request.to);
    choir__bytes_free(&request);
}

choir_status choir__store_talk(choir_store *store, choir__store_op op, int64_t number,
    const choir__store_field *fields, int count, double patience, choir__store_reply *reply)
{
    const uint8_t *message;
    size_t bytes;
    double deadline = choir__now() + patience;
    put_request(store, op, number, fields, count);
    for (;;) {
        int got = choir__channel_next(&store->channel, &message, &bytes);
        if (got < 0 || (got > 0 && !choir__store_reply_read(message, bytes, reply)))
            return lost(store);
        if (got > 0 && reply->seq == store->seq)
            return CHOIR_OK;
        if (got > 0)
            continue;
        switch (choir__store_move(store, deadline)) {
        case CHOIR__CAME: break;
        case CHOIR__GONE: return lost(store);
        case CHOIR__LATE:
            return choir__error(CHOIR_ERR_TIMEOUT,
                "the store at %s did not answer within %g s: its process hangs, or was "
                "stopped",
                store->where, patience);
        }
    }
}

choir_status choir__store_enter(choir_store *store)
{
    if (store->forked)
        return choir__error(CHOIR_ERR_STATE,
            "a connection to a store does not survive a fork: connect again in the child");
    pthread_mutex_lock(&store->lock);
    if (store->failed == CHOIR_OK)
        return CHOIR_OK;
    choir_status status = choir__error(store->failed, "%s", store->why);
    pthread_mutex_unlock(&store->lock);
    return status;
}

void choir__store_leave(choir_store *store)
{
    pthread_mutex_unlock(&store->lock);
}

void choir__store_dismantle(choir_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    choir__channel_free(&store->channel);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

void choir_store_free(choir_store *store)
{
    choir__store_reply reply;
    if (!store)
        return;
    choir__forkable_remove(&store->forkable);
    char *message = choir__strdup(choir__message()); /* a failed goodbye is not reported */
    if (choir__store_enter(store) == CHOIR_OK) {
        choir__store_talk(store, CHOIR__STORE_BYE, 0, NULL, 0, goodbye_s, &reply);
        choir__store_leave(store);
    }
    choir__set_message(message);
    free(message);
    choir__store_dismantle(store);
}

void choir__store_abandon(choir_store *store)
{
    if (!store)
        return;
    choir__forkable_remove(&store->forkable);
    choir__store_dismantle(store);
}
