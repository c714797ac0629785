/* Connections among agents: each side says hello with its number and address, and messages are
 * frames of the store's channel. If two agents call each other at one moment, the one with the
 * smaller number closes the later connection. The user learns whether the peer's kernel has
 * closed a connection: then that agent is gone. */
#include "launch/raft/connections.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/raft/wire.h"
#include "launch/store/channel.h"
#include "launch/store/net.h"

enum { STRANGERS_MAX = 256, READ_BYTES = 64 * 1024, OUT_MAX = 64 << 20, VERSION = 1 };

static const double greet_s = 5;   /* limit of connecting and of both hellos */
static const double again_s = 0.2; /* pause before a lost connection is tried again */
static const double full_s = 0.5;  /* pause without accepting if no descriptor is left */

typedef struct connection {
    struct connection *next;
    int fd;
    bool calls, connecting, over;
    bool by_kernel; /* over: the other side's kernel has said so */
    uint64_t id;    /* 0: no hello yet */
    char address[CHOIR__CONNECTION_ADDRESS];
    double since;
    choir__channel channel;
} connection;

struct choir__connections {
    int listener, port;
    bool keyed;
    choir__store_key key;
    uint64_t self;
    char address[CHOIR__CONNECTION_ADDRESS];
    choir__connections_user user;
    connection *connections;
    struct pollfd *polled;
    size_t polled_room;
    double accepts_at; /* time from which calls are accepted again */
    struct {           /* calls that failed lately are not repeated at once */
        uint64_t id;
        double at;
    } failed[32];
};

/* --- connections --- */

static connection *add_connection(choir__connections *l, int fd, bool calls)
{
    connection *n = choir__calloc(1, sizeof *n);
    *n = (connection){.next = l->connections, .fd = fd, .calls = calls, .connecting = calls};
    n->since = choir__now();
    choir__channel_init(&n->channel, !calls, l->keyed ? &l->key : NULL);
    choir__net_lost_after(fd, choir__net_cut_off_s);
    l->connections = n;
    return n;
}

static bool is_open(const connection *n)
{
    return !n->over && n->id && n->channel.stage == CHOIR__STAGE_OPEN;
}

static connection *connection_to(const choir__connections *l, uint64_t id)
{
    for (connection *n = l->connections; n; n = n->next)
        if (n->id == id && is_open(n))
            return n;
    return NULL;
}

static void close_connection(connection *n, bool by_kernel)
{
    n->over = true;
    n->by_kernel = by_kernel;
}

/* Queues a message. Short ones are filled up, for the channel expects 16 bytes. */
static void put(connection *n, const void *message, size_t bytes)
{
    uint8_t whole[CHOIR__STORE_HEAD] = {0};
    if (bytes >= sizeof whole) {
        choir__channel_put(&n->channel, message, bytes);
    } else {
        memcpy(whole, message, bytes);
        choir__channel_put(&n->channel, whole, sizeof whole);
    }
    if (choir__bytes_left(&n->channel.out) > OUT_MAX)
        close_connection(n, false);
}

static void flush(connection *n)
{
    choir__bytes *out = &n->channel.out;
    while (!n->connecting && choir__bytes_left(out)) {
        ssize_t sent =
            send(n->fd, choir__bytes_front(out), choir__bytes_left(out), MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                close_connection(n, errno == EPIPE || errno == ECONNRESET);
            return;
        }
        choir__bytes_skip(out, (size_t)sent);
    }
}

/* --- hellos --- */

static void say_hello(choir__connections *l, connection *n)
{
    static const char magic[] = "choir agents";
    choir__bytes b = {0};
    choir__write_text(&b, magic, sizeof magic);
    choir__write_number(&b, VERSION);
    choir__write_number(&b, l->self);
    choir__write_text(&b, l->address, strlen(l->address));
    put(n, b.data, b.to);
    choir__bytes_free(&b);
}

/* Two agents may call each other at the same moment. Of two connections, the agent with the
 * smaller number closes the later one, and the other agent closes neither, so one stays. */
static void drop_duplicate(const choir__connections *l, connection *n)
{
    for (const connection *other = l->connections; other && l->self < n->id;
         other = other->next)
        if (other != n && other->id == n->id && is_open(other)) {
            flush(n);
            close_connection(n, false);
            return;
        }
}

/* Takes the other side's hello. Without a key, its process must be this user's. */
static void take_hello(
    choir__connections *l, connection *n, const uint8_t *message, size_t bytes)
{
    choir__reader r = {message, message + bytes, false};
    char magic[16];
    choir__copy_text(&r, magic, sizeof magic);
    uint64_t version = choir__read_number(&r), id = choir__read_number(&r);
    choir__copy_text(&r, n->address, sizeof n->address);
    if (r.bad || strcmp(magic, "choir agents") != 0 || version != VERSION || !id ||
        (!l->keyed && choir__net_peer(n->fd) != CHOIR__OURS)) {
        close_connection(n, false);
        return;
    }
    n->id = id;
    if (!n->calls)
        say_hello(l, n);
    drop_duplicate(l, n);
}

/* --- receiving --- */

static void take_messages(choir__connections *l, connection *n)
{
    const uint8_t *message;
    size_t bytes;
    bool was_open = n->channel.stage == CHOIR__STAGE_OPEN;
    int got = 0;
    while (!n->over && (got = choir__channel_next(&n->channel, &message, &bytes)) > 0) {
        if (!n->id)
            take_hello(l, n, message, bytes);
        else
            l->user.came(l->user.arg, n->id, message, bytes);
    }
    if (n->calls && !was_open && n->channel.stage == CHOIR__STAGE_OPEN)
        say_hello(l, n);
    if (got < 0) {
        flush(n); /* the reason for a refusal */
        close_connection(n, false);
    }
}

static void receive(choir__connections *l, connection *n)
{
    choir__bytes *in = &n->channel.in;
    ssize_t got = recv(n->fd, choir__bytes_grow(in, READ_BYTES), READ_BYTES, 0);
    if (got > 0) {
        in->to += (size_t)got;
        take_messages(l, n);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        close_connection(n, got == 0 || errno == ECONNRESET);
    }
}

static void finish_connecting(connection *n)
{
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(n->fd, SOL_SOCKET, SO_ERROR, &error, &length) || error)
        close_connection(n, false);
    n->connecting = false;
}

static int count_strangers(const choir__connections *l)
{
    int strangers = 0;
    for (const connection *n = l->connections; n; n = n->next)
        strangers += !n->id && !n->calls;
    return strangers;
}

/* Returns whether calls are accepted now. Others wait in the kernel, and must not keep poll
 * from sleeping meanwhile. */
static bool accepts(const choir__connections *l)
{
    return choir__now() >= l->accepts_at && count_strangers(l) < STRANGERS_MAX;
}

static void take_in(choir__connections *l)
{
    choir__address from;
    for (int strangers = count_strangers(l); strangers < STRANGERS_MAX; strangers++) {
        int fd = choir__net_accept(l->listener, &from);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
                errno != ECONNABORTED)
                l->accepts_at = choir__now() + full_s;
            return;
        }
        connection *n = add_connection(l, fd, false);
        if (!l->keyed && choir__net_peer(fd) != CHOIR__OURS) {
            choir__channel_refuse(&n->channel, CHOIR__REFUSAL_USER);
            flush(n);
            close_connection(n, false);
        }
    }
}

/* --- calling --- */

static bool failed_lately(choir__connections *l, uint64_t id, bool note)
{
    double now = choir__now();
    size_t at = id % CHOIR_COUNT(l->failed);
    if (note) {
        l->failed[at].id = id;
        l->failed[at].at = now;
    }
    return l->failed[at].id == id && now - l->failed[at].at < again_s;
}

/* Begins a connection with the first address of that name. */
static connection *call(
    choir__connections *l, const char *host, int port, char why[200], bool *again)
{
    choir__address list[CHOIR__ADDRESSES_MAX];
    int count = choir__net_resolve(host, port, false, list, why, again);
    for (int i = 0; i < count; i++) {
        if (!l->keyed && !choir__net_is_here(&list[i])) {
            snprintf(why, 200,
                "it is not on this machine, which needs the job's key: name its "
                "file with --key-file");
            continue;
        }
        int fd = choir__net_begin(&list[i]);
        if (fd >= 0)
            return add_connection(l, fd, true);
        snprintf(why, 200, "%s", choir__why(errno));
        *again = true;
    }
    return NULL;
}

static void call_agent(choir__connections *l, uint64_t id, const char *address)
{
    char host[CHOIR__HOST_TEXT], why[200];
    int port = 0;
    bool again;
    if (failed_lately(l, id, false))
        return;
    for (connection *n = l->connections; n; n = n->next)
        if (n->calls && !n->over && !n->id && !strcmp(n->address, address))
            return;
    connection *n = choir__host_port(address, host, &port) == CHOIR_OK
                        ? call(l, host, port, why, &again)
                        : NULL;
    if (n)
        snprintf(n->address, sizeof n->address, "%s", address);
    else
        failed_lately(l, id, true);
}

bool choir__connections_send(
    choir__connections *l, uint64_t id, const char *address, const void *message, size_t bytes)
{
    connection *n = connection_to(l, id);
    if (!n) {
        if (address && *address)
            call_agent(l, id, address);
        return false;
    }
    put(n, message, bytes);
    flush(n);
    return !n->over;
}

void choir__connections_keep(choir__connections *l, uint64_t id, const char *address)
{
    if (!connection_to(l, id))
        call_agent(l, id, address);
}

const char *choir__connections_address(const choir__connections *l, uint64_t id)
{
    connection *n = connection_to(l, id);
    return n ? n->address : NULL;
}

/* --- polling --- */

/* Returns whether another connection to n's agent is open or being opened. The peer may have
 * closed n in its favour. */
static bool has_another(const choir__connections *l, const connection *n)
{
    for (const connection *other = l->connections; other; other = other->next)
        if (!other->over && !other->id && other->calls && !strcmp(other->address, n->address))
            return true;
    return connection_to(l, n->id) != NULL;
}

/* Frees closed connections, and reports each agent whose last connection was closed. */
static void sweep(choir__connections *l)
{
    for (connection **at = &l->connections; *at;) {
        connection *n = *at;
        bool late = !n->id && choir__now() - n->since > greet_s;
        if (!n->over && !late) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        close(n->fd);
        choir__channel_free(&n->channel);
        if (n->id && n->by_kernel && !has_another(l, n))
            l->user.gone(l->user.arg, n->id);
        free(n);
        at = &l->connections; /* `gone` may have begun others */
    }
}

void choir__connections_poll(choir__connections *l, double wait_s, int wake)
{
    size_t count = 2;
    for (connection *n = l->connections; n; n = n->next)
        count++;
    if (count > l->polled_room) {
        l->polled_room = 2 * count;
        l->polled = choir__realloc(l->polled, l->polled_room * sizeof *l->polled);
    }
    struct pollfd *p = l->polled;
    bool listens = accepts(l);
    p[0] = (struct pollfd){.fd = listens ? l->listener : -1, .events = POLLIN};
    p[1] = (struct pollfd){.fd = wake, .events = POLLIN};
    count = 2;
    for (connection *n = l->connections; n; n = n->next) {
        short out = n->connecting || choir__bytes_left(&n->channel.out) ? POLLOUT : 0;
        p[count++] = (struct pollfd){.fd = n->fd, .events = (short)(POLLIN | out)};
    }
    if (!listens && wait_s > full_s)
        wait_s = full_s;
    if (poll(p, (nfds_t)count, (int)(wait_s * 1e3)) <= 0) {
        sweep(l);
        return;
    }
    size_t i = 2, there = count;
    for (connection *n = l->connections; n && i < there; n = n->next, i++) {
        if (n->fd != p[i].fd) /* connections that callbacks have begun stand in front */
            break;
        if (n->connecting && p[i].revents)
            finish_connecting(n);
        if (!n->over && (p[i].revents & (POLLIN | POLLHUP | POLLERR)))
            receive(l, n);
        if (!n->over)
            flush(n);
    }
    if (p[0].revents)
        take_in(l);
    sweep(l);
}

/* --- finding the first agent --- */

static choir_status explain(const connection *n, const char *where)
{
    switch (n->channel.refusal) {
    case CHOIR__REFUSAL_KEY_NEEDED:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the agent at %s asks for the job's key: name its file with --key-file", where);
    case CHOIR__REFUSAL_NO_KEY:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the agent at %s has no key, and this one was given one: is it another job's?",
            where);
    case CHOIR__REFUSAL_WRONG_KEY:
    case CHOIR__REFUSAL_IMPOSTOR:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the agent at %s has another key than this one: all nodes of a job need the same "
            "key file, byte for byte",
            where);
    case CHOIR__REFUSAL_USER:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the agent at %s belongs to another user: give the job a key (--key-file)", where);
    case CHOIR__REFUSAL_VERSION:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the agent at %s speaks version %d of the protocol, this one version %d: use the "
            "same release of Choir everywhere",
            where, n->channel.peer_version, CHOIR__STORE_VERSION);
    default:
        return choir__error(CHOIR_ERR_MISMATCH,
            "what answers at %s is not an agent of --rdzv-backend raft", where);
    }
}

/* Waits until the connection says hello or is over, and then keeps it from being freed. */
static bool await_hello(choir__connections *l, connection *n, double deadline)
{
    double until = choir__now() + greet_s;
    if (until > deadline)
        until = deadline;
    while (!n->over && !n->id && choir__now() < until) {
        short out = n->connecting || choir__bytes_left(&n->channel.out) ? POLLOUT : 0;
        struct pollfd p = {.fd = n->fd, .events = (short)(POLLIN | out)};
        if (poll(&p, 1, 100) <= 0)
            continue;
        if (n->connecting)
            finish_connecting(n);
        if (!n->over && (p.revents & (POLLIN | POLLHUP | POLLERR)))
            receive(l, n);
        if (!n->over)
            flush(n);
    }
    return n->id && !n->over;
}

choir_status choir__connections_find(choir__connections *l, const char *host, int port,
    double deadline, uint64_t *id, char self[CHOIR__HOST_TEXT])
{
    char where[CHOIR__HOST_TEXT + 16], why[200] = "it did not answer", text[160];
    bool again = true;
    snprintf(where, sizeof where, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    while (choir__now() < deadline && again) {
        connection *n = call(l, host, port, why, &again);
        again |= n != NULL;
        bool found = n && await_hello(l, n, deadline);
        if (found) {
            choir__address own;
            *id = n->id;
            if (choir__net_self(n->fd, &own))
                snprintf(self, CHOIR__HOST_TEXT, "%s", choir__net_host(&own, text));
            return CHOIR_OK;
        }
        bool answered = n && n->channel.stage != CHOIR__STAGE_HELLO;
        choir_status status = answered && n->channel.refusal != CHOIR__REFUSAL_NONE
                                  ? explain(n, where)
                                  : CHOIR_OK;
        bool strange = answered && n->channel.stage == CHOIR__STAGE_OPEN && n->over;
        if (strange && !n->by_kernel)
            status = explain(n, where);
        if (n)
            close_connection(n, false);
        sweep(l);
        if (status != CHOIR_OK)
            return status;
        choir__connections_poll(l, 0.2, -1);
    }
    if (!again)
        return choir__error(CHOIR_ERR_ARGUMENT, "cannot call the agent at %s: %s", where, why);
    return choir__error(CHOIR_ERR_TIMEOUT, "no agent answered at %s: %s", where, why);
}

/* --- opening and closing --- */

choir_status choir__connections_open(const char *host, int port, const choir__store_key *key,
    uint64_t self, choir__connections_user user, choir__connections **made)
{
    choir__address list[CHOIR__ADDRESSES_MAX], own;
    char why[200] = "no address", holder[160];
    bool again;
    int listener = -1, count = choir__net_resolve(host, port, true, list, why, &again);
    if (!count)
        return choir__error(CHOIR_ERR_ARGUMENT, "cannot listen at '%s': %s", host, why);
    for (int i = 0; i < count && listener < 0; i++) {
        if (!key && !choir__net_is_here(&list[i]))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "an agent at %s can be reached from other machines, which needs a key: name its "
                "file (--key-file, mode 0600), or meet at 127.0.0.1",
                host);
        listener = choir__net_listen(&list[i]);
    }
    if (listener < 0 && errno == EADDRINUSE)
        return choir__error(CHOIR_ERR_IO,
            "cannot listen at %s port %d: the port is in use by %s; choose another", host, port,
            choir__net_holder(port, holder));
    if (listener < 0)
        return choir__error(
            CHOIR_ERR_IO, "cannot listen at %s port %d: %s", host, port, choir__why(errno));
    choir__connections *l = choir__calloc(1, sizeof *l);
    l->listener = listener;
    l->keyed = key;
    if (key)
        l->key = *key;
    l->self = self;
    l->user = user;
    if (choir__net_self(listener, &own))
        l->port = choir__net_port(&own);
    *made = l;
    return CHOIR_OK;
}

int choir__connections_port(const choir__connections *l)
{
    return l->port;
}

void choir__connections_name(choir__connections *l, const char *address)
{
    snprintf(l->address, sizeof l->address, "%s", address);
}

void choir__connections_close(choir__connections *l)
{
    if (!l)
        return;
    while (l->connections) {
        connection *n = l->connections;
        l->connections = n->next;
        flush(n);
        close(n->fd);
        choir__channel_free(&n->channel);
        free(n);
    }
    close(l->listener);
    free(l->polled);
    sodium_memzero(&l->key, sizeof l->key);
    free(l);
}
