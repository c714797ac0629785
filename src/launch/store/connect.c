/* Connecting: a client calls, greets, and checks the other side's owner. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "launch/store/client.h"
#include "launch/store/net.h"

static const double new_name_s = 15; /* how long a host's name may take to become known */

choir_store_opts choir_store_defaults(void)
{
    return (choir_store_opts){.key_fd = -1,
        .bind = "127.0.0.1",
        .clients_max = 4096,
        .keys_max = 65536,
        .bytes_max = (size_t)256 << 20,
        .timeout_s = 300};
}

choir_status choir__store_key_given(const choir_store_opts *opts, choir__store_key **key)
{
    bool file = opts->key_file && *opts->key_file;
    *key = NULL;
    if (!opts->bind) /* key_fd 0 would be standard input */
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store: missing bind; begin the options with choir_store_defaults()");
    if (file && opts->key_fd >= 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a key from the file '%s' and from descriptor %d: name one of them", opts->key_file,
            opts->key_fd);
    if (!file && opts->key_fd < 0)
        return CHOIR_OK;
    choir_status status = choir__store_key_new(key);
    if (status == CHOIR_OK)
        status = file ? choir__store_key_read_file(opts->key_file, *key)
                      : choir__store_key_read_fd(opts->key_fd, *key);
    if (status == CHOIR_OK)
        return CHOIR_OK;
    choir__store_key_free(*key);
    *key = NULL;
    return status;
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
            "the process that answers at %s could not prove that it holds the job's key",
            where);
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

/* Without keys, the server must be a process of the same user. */
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
        choir__store_progress p = choir__store_move(store, deadline);
        if (p != CHOIR__CAME) {
            errno = p == CHOIR__LATE ? ETIMEDOUT : errno ? errno : ECONNRESET;
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
    int fd, const char *where, double timeout_s, const choir__store_key *key)
{
    choir_store *s = choir__calloc(1, sizeof *s);
    s->fd = fd;
    s->timeout_s = timeout_s;
    snprintf(s->where, sizeof s->where, "%s", where);
    pthread_mutex_init(&s->lock, NULL);
    choir__channel_init(&s->channel, false, key);
    return s;
}

/* Sets *store on success; otherwise errno (try again) or *status (hopeless). */
static greeting connect_over(int fd, const char *where, double timeout_s, double deadline,
    const choir__store_key *key, choir_store **store, choir_status *status)
{
    choir_store *s = new_client(fd, where, timeout_s, key);
    greeting g = greet(s, deadline, status);
    if (g != GREETED) {
        int why = errno;
        choir__store_dismantle(s);
        errno = why;
        return g;
    }
    s->forkable = (choir__forkable){.in_child = in_child, .self = s};
    choir__forkable_add(&s->forkable);
    *store = s;
    return GREETED;
}

choir_status choir__store_over(int fd, const char *where, double timeout_s,
    const choir__store_key *key, choir_store **store)
{
    choir_status status = CHOIR_OK;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    greeting g =
        connect_over(fd, where, timeout_s, choir__now() + timeout_s, key, store, &status);
    if (g == TRY_AGAIN)
        return choir__error(errno == ETIMEDOUT ? CHOIR_ERR_TIMEOUT : CHOIR_ERR_PEER_LOST,
            "the store at %s did not greet: %s", where, choir__why(errno));
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
    const choir__store_key *key;
    char why[200];  /* reason of the latest failure */
    bool name_only; /* the latest failure: the name is unknown */
} attempt;

/* Tries each of the host's addresses once. */
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
                           : choir__why(errno));
        if (!may_pass(errno)) {
            *status = choir__error(
                CHOIR_ERR_IO, "cannot call the store at %s: %s", text, choir__why(errno));
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
    const choir__store_key *key, choir_store **store)
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
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store: expected a port from 1 to 65535, got %d of '%s'", port, host);
    if (!(opts.timeout_s >= 0))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store: expected a timeout of 0 s or more, got %g", opts.timeout_s);
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    a.started = choir__now();
    a.deadline = a.started + opts.timeout_s;
    for (;;) {
        greeting g = try_once(&a, store, &status);
        if (g == GREETED)
            choir__net_lost_after((*store)->fd, opts.lost_after_s);
        if (g != TRY_AGAIN)
            return status;
        if (choir__now() >= a.deadline)
            /* no time here: each rank has its own rest of a meeting's */
            return choir__error(
                CHOIR_ERR_TIMEOUT, "no store answered at %s: %s", describe(&a, text), a.why);
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < 200 * 1000 * 1000)
            pause.tv_nsec *= 2;
    }
}

choir_status choir_store_connect(
    const char *host, int port, choir_store_opts opts, choir_store **store)
{
    choir__store_key *key;
    if (!store)
        return choir__missing(__func__, "store");
    choir_status status = choir__store_key_given(&opts, &key);
    if (status == CHOIR_OK)
        status = choir__store_connect(host, port, opts, key, store);
    choir__store_key_free(key);
    if (status == CHOIR_ERR_TIMEOUT) {
        char *why = choir__format("%s (within %g s)", choir__message(), opts.timeout_s);
        choir__set_message(why);
        free(why);
    }
    return status;
}
