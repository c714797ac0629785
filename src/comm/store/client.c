/* The client's connection; calls.c has the calls, which take turns on it.
 *
 * Every request has a number, and replies to earlier ones are passed over: so a call whose time
 * was over leaves the connection fit for the next. What breaks the connection itself sticks. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "comm/store/client.h"
#include "comm/store/net.h"
#include "comm/store/store.h"

static const double goodbye_s = 2;   /* for the server to take note */
static const double new_name_s = 15; /* a host's name may take so long to be known */

choir_store_opts choir_store_defaults(void)
{
    return (choir_store_opts){.key_fd = -1,
        .bind = "127.0.0.1",
        .clients_max = 4096,
        .keys_max = 65536,
        .bytes_max = (size_t)256 << 20,
        .timeout_s = 300};
}

choir_status choir__store_key(const choir_store_opts *opts, choir__key *key, bool *given)
{
    bool file = opts->key_file && *opts->key_file;
    *given = file || opts->key_fd >= 0;
    *key = (choir__key){{0}};
    if (file && opts->key_fd >= 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a key from the file '%s' and from descriptor %d: name one of them", opts->key_file,
            opts->key_fd);
    if (file)
        return choir__key_read_file(opts->key_file, key);
    return *given ? choir__key_read_fd(opts->key_fd, key) : CHOIR_OK;
}

/* --- moving bytes --- */

typedef enum progress { LATE, CAME, GONE } progress;

/* Sends what can be sent, and waits until something came. */
static progress move(choir_store *store, double deadline)
{
    choir__bytes *out = &store->channel.out, *in = &store->channel.in;
    bool deaf = false; /* it takes nothing any more; its last words may still be there */
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
            return CAME;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return GONE;
        short events = (short)(POLLIN | (choir__bytes_left(out) && !deaf ? POLLOUT : 0));
        if (!choir__net_await(store->fd, events, deadline))
            return LATE;
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

/* --- greeting --- */

static choir_status explain(choir_store *store)
{
    const char *where = store->where;
    switch (store->channel.refusal) {
    case CHOIR__REFUSAL_VERSION:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the store at %s speaks version %d of the protocol, this process version %d: use "
            "the same release of Choir everywhere",
            where, store->channel.peer_version, CHOIR__STORE_VERSION);
    case CHOIR__REFUSAL_KEY_NEEDED:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the store at %s asks for the job's key: name its file with --key-file or "
            "CHOIR_KEY_FILE",
            where);
    case CHOIR__REFUSAL_NO_KEY:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the store at %s has no key, and this process was given one: is it another job's?",
            where);
    case CHOIR__REFUSAL_WRONG_KEY:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the store at %s has another key than this process: all ranks of a job need the "
            "same key file, byte for byte",
            where);
    case CHOIR__REFUSAL_IMPOSTOR:
        return choir__error(CHOIR_ERR_MISMATCH,
            "whoever answers at %s could not prove that it holds the job's key", where);
    case CHOIR__REFUSAL_FULL:
        return choir__error(
            CHOIR_ERR_STATE, "the store at %s has as many clients as it takes", where);
    case CHOIR__REFUSAL_USER:
        return choir__error(CHOIR_ERR_MISMATCH,
            "the store at %s belongs to another user, or cannot tell that this process is its "
            "user's: give the job a key (--key-file, CHOIR_KEY_FILE)",
            where);
    case CHOIR__REFUSAL_NOT_STORE:
        return choir__error(CHOIR_ERR_MISMATCH,
            "what answers at %s is not a store: is it another program's port?", where);
    default:
        return choir__error(
            CHOIR_ERR_MISMATCH, "what answers at %s makes no sense as a store", where);
    }
}

typedef enum greeting { GREETED, TRY_AGAIN, HOPELESS } greeting;

/* Without keys, whoever answers must be a process of our own user. */
static greeting check_whose(choir_store *store, choir_status *status)
{
    choir__whose whose = store->channel.keyed ? CHOIR__OURS : choir__net_peer(store->fd);
    switch (whose) {
    case CHOIR__OURS: *status = CHOIR_OK; return GREETED;
    case CHOIR__NOBODYS: errno = ECONNRESET; return TRY_AGAIN;
    case CHOIR__NOT_OURS:
        *status = choir__error(CHOIR_ERR_MISMATCH,
            "what answers at %s is not a process of this user: choose another port, or give "
            "the job a key (--key-file, CHOIR_KEY_FILE)",
            store->where);
        break;
    case CHOIR__CANNOT_TELL:
        *status = choir__error(CHOIR_ERR_MISMATCH,
            "cannot tell which user answers at %s (/proc/net is not readable): give the job a "
            "key (--key-file, CHOIR_KEY_FILE)",
            store->where);
        break;
    }
    return HOPELESS;
}

static greeting greet(choir_store *store, double deadline, choir_status *status)
{
    const uint8_t *message;
    size_t bytes;
    for (;;) {
        int got = choir__channel_next(&store->channel, &message, &bytes);
        if (store->channel.stage == CHOIR__STAGE_OPEN)
            return check_whose(store, status);
        if (got < 0 && store->channel.refusal == CHOIR__REFUSAL_BUSY) {
            errno = EBUSY;
            return TRY_AGAIN;
        }
        if (got < 0) {
            *status = explain(store);
            return HOPELESS;
        }
        errno = 0;
        progress p = move(store, deadline);
        if (p != CAME) {
            errno = p == LATE ? ETIMEDOUT : errno ? errno : ECONNRESET;
            return TRY_AGAIN;
        }
    }
}

/* --- connecting --- */

static void in_child(void *self)
{
    choir_store *store = self;
    close(store->fd);
    store->fd = -1;
    store->forked = true;
}

static choir_store *new_client(
    int fd, const char *where, double timeout_s, const choir__key *key)
{
    choir_store *s = choir__calloc(1, sizeof *s);
    s->fd = fd;
    s->timeout_s = timeout_s;
    snprintf(s->where, sizeof s->where, "%s", where);
    pthread_mutex_init(&s->lock, NULL);
    choir__channel_init(&s->channel, false, key);
    return s;
}

static void dismantle(choir_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    choir__channel_free(&store->channel);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* On success *store; else errno (try again) or *status (hopeless). */
static greeting connect_over(int fd, const char *where, double timeout_s, double deadline,
    const choir__key *key, choir_store **store, choir_status *status)
{
    choir_store *s = new_client(fd, where, timeout_s, key);
    greeting g = greet(s, deadline, status);
    if (g != GREETED) {
        int why = errno;
        dismantle(s);
        errno = why;
        return g;
    }
    s->forkable = (choir__forkable){.in_child = in_child, .self = s};
    choir__forkable_add(&s->forkable);
    *store = s;
    return GREETED;
}

choir_status choir__store_over(
    int fd, const char *where, double timeout_s, const choir__key *key, choir_store **store)
{
    choir_status status = CHOIR_OK;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    greeting g =
        connect_over(fd, where, timeout_s, choir__now() + timeout_s, key, store, &status);
    if (g == TRY_AGAIN)
        return choir__error(errno == ETIMEDOUT ? CHOIR_ERR_TIMEOUT : CHOIR_ERR_PEER_LOST,
            "the store at %s did not greet: %s", where, strerror(errno));
    return status;
}

static bool may_pass(int error)
{
    switch (error) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EADDRNOTAVAIL:
    case EAGAIN:
    case EINTR:
    case EBUSY: return true;
    default: return false;
    }
}

typedef struct attempt {
    const char *host;
    int port;
    double timeout_s, started, deadline;
    const choir__key *key;
    char why[200];  /* of the latest failure */
    bool name_only; /* it was that the name is not known */
} attempt;

/* One round over the host's addresses. */
static greeting try_once(attempt *a, choir_store **store, choir_status *status)
{
    choir__address list[CHOIR__ADDRESSES_MAX];
    char text[160];
    bool again;
    int away = 0;
    int count = choir__net_resolve(a->host, a->port, false, list, a->why, &again);
    a->name_only = !count;
    if (!count) {
        *status = choir__error(
            CHOIR_ERR_ARGUMENT, "cannot call a store at '%s': %s", a->host, a->why);
        return again && choir__now() - a->started < new_name_s ? TRY_AGAIN : HOPELESS;
    }
    for (int i = 0; i < count; i++) {
        choir__net_text(&list[i], text);
        if (!a->key && !choir__net_is_here(&list[i])) {
            away++;
            continue;
        }
        int fd = choir__net_connect(&list[i], a->deadline);
        greeting g =
            fd < 0 ? TRY_AGAIN
                   : connect_over(fd, text, a->timeout_s, a->deadline, a->key, store, status);
        if (g != TRY_AGAIN)
            return g;
        snprintf(a->why, sizeof a->why, "%s",
            errno == EBUSY ? "it turns this machine away after too many failures"
                           : strerror(errno));
        if (!may_pass(errno)) {
            *status = choir__error(
                CHOIR_ERR_IO, "cannot call the store at %s: %s", text, strerror(errno));
            return HOPELESS;
        }
    }
    if (away < count)
        return TRY_AGAIN;
    *status = choir__error(CHOIR_ERR_ARGUMENT,
        "the store at %s is not on this machine, which needs the job's key: name its file "
        "with --key-file or CHOIR_KEY_FILE",
        text);
    return HOPELESS;
}

static const char *describe(const attempt *a, char text[160])
{
    if (!strncmp(a->host, "unix:", 5))
        snprintf(text, 160, "%s", a->host);
    else
        snprintf(text, 160, strchr(a->host, ':') ? "[%s]:%d" : "%s:%d", a->host, a->port);
    return text;
}

choir_status choir__store_connect(const char *host, int port, choir_store_opts opts,
    const choir__key *key, choir_store **store)
{
    bool unix_name = host && !strncmp(host, "unix:", 5);
    struct timespec pause = {.tv_nsec = 1000 * 1000};
    attempt a = {
        .host = host, .port = port, .timeout_s = opts.timeout_s, .key = key, .why = "?"};
    choir_status status = CHOIR_OK;
    char text[160];
    if (!host || !*host)
        return choir__error(CHOIR_ERR_ARGUMENT, "a store is called by its host's name");
    if (!unix_name && (port < 1 || port > 65535))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a store at port %d of '%s': want 1 to 65535", port, host);
    if (!(opts.timeout_s >= 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a store's timeout is %g s: want 0 or more", opts.timeout_s);
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    a.started = choir__now();
    a.deadline = a.started + opts.timeout_s;
    for (;;) {
        greeting g = try_once(&a, store, &status);
        if (g != TRY_AGAIN)
            return status;
        if (choir__now() >= a.deadline)
            return choir__error(CHOIR_ERR_TIMEOUT, "no store answered at %s within %.3g s: %s",
                describe(&a, text), opts.timeout_s, a.why);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 200 * 1000 * 1000)
            pause.tv_nsec *= 2;
    }
}

choir_status choir_store_connect(
    const char *host, int port, choir_store_opts opts, choir_store **store)
{
    choir__key key;
    bool given;
    choir_status status = choir__store_key(&opts, &key, &given);
    if (!status)
        status = choir__store_connect(host, port, opts, given ? &key : NULL, store);
    sodium_memzero(&key, sizeof key);
    return status;
}

/* --- talking --- */

static void put_request(choir_store *store, choir__store_op op, int64_t number,
    const choir__field *fields, int count)
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
    const choir__field *fields, int count, double patience, choir__store_reply *reply)
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
        switch (move(store, deadline)) {
        case CAME: break;
        case GONE: return lost(store);
        case LATE:
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
    if (!store->failed)
        return CHOIR_OK;
    choir_status status = choir__error(store->failed, "%s", store->why);
    pthread_mutex_unlock(&store->lock);
    return status;
}

void choir__store_leave(choir_store *store)
{
    pthread_mutex_unlock(&store->lock);
}

void choir_store_free(choir_store *store)
{
    choir__store_reply reply;
    if (!store)
        return;
    choir__forkable_remove(&store->forkable);
    char *message = choir__strdup(choir_error_message()); /* going is no news */
    if (!choir__store_enter(store)) {
        choir__store_talk(store, CHOIR__STORE_BYE, 0, NULL, 0, goodbye_s, &reply);
        choir__store_leave(store);
    }
    choir__set_message(message);
    free(message);
    dismantle(store);
}

void choir__store_abandon(choir_store *store)
{
    if (!store)
        return;
    choir__forkable_remove(&store->forkable);
    dismantle(store);
}
