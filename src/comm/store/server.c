/* The server: one thread, which never waits for a client.
 *
 * A connection is `waiting` until its greeting is done, and again while it is being hung up on:
 * for five seconds at most, and no more than 1024 of them, the oldest of which makes room. So
 * silence holds up nobody and costs little. From a client that is open nothing is read while it
 * has not taken its last reply, which bounds what is held for it.
 *
 * Without a key the server listens on this machine alone, and talks to processes of our own
 * user id alone (choir__net_peer): where that cannot be told, it does not talk.
 *
 * `lock` is held while the thread works and free while it sleeps, for the sake of fork: a child
 * finds the server at rest and closes its copies of the descriptors. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/store/failures.h"
#include "comm/store/forked.h"
#include "comm/store/net.h"
#include "comm/store/session.h"
#include "comm/store/store.h"

enum { WAITING_MAX = 1024, READ_BYTES = 16 * 1024, EVENTS = 64 };

static const double patience_s = 5; /* with a connection that is waiting */
static const double pause_s = 0.1;  /* in accepting, while there are no descriptors */

typedef struct client {
    choir__session session;
    struct client *next, *prev;
    struct list *list;
    int fd;             /* -1: gone */
    uint32_t events;    /* epoll's */
    bool open, leaving; /* greeted; hung up on, once `out` is sent */
    bool shut;          /* it was */
    double deadline;    /* while it is waiting */
    uint64_t from;
} client;

typedef struct list {
    client *first, *last;
    int count;
} list;

struct choir_store_server {
    pthread_t thread;
    pthread_mutex_t lock;
    choir__forkable forkable;
    bool forked; /* this is a child's copy: there is no thread */
    int listener, epoll, stop;
    int port, clients_max;
    bool keyed, stopping, deaf; /* deaf: not accepting, until hears_at */
    double hears_at;
    choir__key key;
    choir__hub hub;
    choir__failures failures;
    list waiting, open, gone; /* waiting: in the order of their deadlines */
};

/* --- lists --- */

static void leave(client *c)
{
    list *l = c->list;
    if (!l)
        return;
    *(c->prev ? &c->prev->next : &l->first) = c->next;
    *(c->next ? &c->next->prev : &l->last) = c->prev;
    c->next = c->prev = NULL;
    c->list = NULL;
    l->count--;
}

static void enter(list *l, client *c)
{
    leave(c);
    c->prev = l->last;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
    c->list = l;
    l->count++;
}

/* --- one client --- */

static void watch(choir_store_server *server, client *c, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (c->events != events)
        epoll_ctl(server->epoll, c->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e);
    c->events = events;
}

/* Its memory lasts until the events at hand are through. */
static void drop(choir_store_server *server, client *c)
{
    if (c->fd < 0)
        return;
    close(c->fd); /* which takes it out of epoll */
    c->fd = -1;
    choir__session_end(&c->session);
    enter(&server->gone, c);
}

static bool flush(client *c)
{
    choir__bytes *out = &c->session.channel.out;
    while (choir__bytes_left(out)) {
        ssize_t n = send(c->fd, choir__bytes_front(out), choir__bytes_left(out), MSG_NOSIGNAL);
        if (n > 0)
            choir__bytes_skip(out, (size_t)n);
        else if (errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    return true;
}

/* Says what is left to say, then waits a little for the other side to close: closing first,
 * with its words unread, would throw away ours. */
static void hang_up(choir_store_server *server, client *c)
{
    if (!c->leaving) {
        c->leaving = true;
        c->deadline = choir__now() + patience_s;
        enter(&server->waiting, c);
    }
    if (!flush(c)) {
        drop(server, c);
        return;
    }
    bool more = choir__bytes_left(&c->session.channel.out);
    if (!more && !c->shut) {
        c->shut = true;
        shutdown(c->fd, SHUT_WR);
    }
    watch(server, c, more ? EPOLLOUT : EPOLLIN);
}

static void note_failure(choir_store_server *server, client *c)
{
    switch (c->session.channel.refusal) {
    case CHOIR__REFUSAL_KEY_NEEDED:
    case CHOIR__REFUSAL_WRONG_KEY:
    case CHOIR__REFUSAL_USER:
    case CHOIR__REFUSAL_NOT_STORE:
    case CHOIR__REFUSAL_GARBLED:
        choir__failures_note(&server->failures, c->from, choir__now());
        break;
    default: break;
    }
}

/* Goes on with what has come, as far as the client takes the replies. */
static void work(choir_store_server *server, client *c)
{
    choir__bytes *out = &c->session.channel.out;
    for (;;) {
        bool more = choir__session_go(&c->session), said = choir__bytes_left(out);
        if (!c->open && c->session.channel.stage == CHOIR__STAGE_OPEN) {
            c->open = true;
            enter(&server->open, c);
            if (server->open.count > server->clients_max) { /* several came at once */
                drop(server, c);
                return;
            }
        }
        if (!flush(c)) {
            drop(server, c);
            return;
        }
        if (!more) {
            if (!c->open)
                note_failure(server, c);
            hang_up(server, c);
            return;
        }
        if (choir__bytes_left(out) || !said) {
            watch(server, c, choir__bytes_left(out) ? EPOLLOUT : EPOLLIN);
            return;
        }
    }
}

static void serve(choir_store_server *server, client *c, uint32_t events)
{
    if (c->fd < 0)
        return;
    choir__bytes *in = &c->session.channel.in;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        ssize_t n = recv(c->fd, choir__bytes_grow(in, READ_BYTES), READ_BYTES, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            drop(server, c);
            return;
        }
        if (n > 0 && !c->leaving)
            in->to += (size_t)n;
    }
    if (c->leaving)
        hang_up(server, c);
    else
        work(server, c);
}

/* --- new ones --- */

static choir__refusal judge(choir_store_server *server, int fd, uint64_t from)
{
    if (server->open.count >= server->clients_max)
        return CHOIR__REFUSAL_FULL;
    if (!server->keyed)
        return choir__net_peer(fd) == CHOIR__OURS ? CHOIR__REFUSAL_NONE : CHOIR__REFUSAL_USER;
    return choir__failures_many(&server->failures, from, choir__now()) ? CHOIR__REFUSAL_BUSY
                                                                       : CHOIR__REFUSAL_NONE;
}

static void listen_again(choir_store_server *server, bool again)
{
    struct epoll_event e = {.events = again ? EPOLLIN : 0, .data.ptr = &server->listener};
    epoll_ctl(server->epoll, EPOLL_CTL_MOD, server->listener, &e);
    server->deaf = !again;
    server->hears_at = choir__now() + pause_s;
}

static void take_in(choir_store_server *server)
{
    choir__address from;
    for (int n = 0; n < EVENTS; n++) {
        int fd = choir__net_accept(server->listener, &from);
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR &&
                errno != ECONNABORTED)
                listen_again(server, false);
            return;
        }
        if (server->waiting.count >= WAITING_MAX)
            drop(server, server->waiting.first);
        client *c = choir__calloc(1, sizeof *c);
        c->fd = fd;
        c->from = choir__failures_from(&from);
        c->deadline = choir__now() + patience_s;
        choir__session_init(&c->session, &server->hub, server->keyed ? &server->key : NULL);
        c->session.owner = c;
        enter(&server->waiting, c);
        choir__refusal why = judge(server, fd, c->from);
        if (why) {
            choir__channel_refuse(&c->session.channel, why);
            note_failure(server, c);
            hang_up(server, c);
        } else {
            watch(server, c, EPOLLIN);
        }
    }
}

/* --- the thread --- */

static void answer_woken(choir_store_server *server)
{
    choir__session *s;
    while ((s = server->hub.woken)) {
        client *c = s->owner;
        server->hub.woken = s->next_woken;
        s->is_woken = false;
        if (c->leaving)
            hang_up(server, c);
        else
            work(server, c);
    }
}

static void free_gone(choir_store_server *server)
{
    for (client *c = server->gone.first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    server->gone = (list){0};
}

/* What is due by itself; how many milliseconds until something is again, -1: never. */
static int tend(choir_store_server *server)
{
    double now = choir__now(), due = choir__hub_expire(&server->hub, now);
    while (server->waiting.first && server->waiting.first->deadline <= now)
        drop(server, server->waiting.first);
    answer_woken(server); /* also those whom the dropped ones' wills have woken */
    if (server->deaf && server->hears_at <= now)
        listen_again(server, true);
    free_gone(server);
    if (server->waiting.first && (!due || server->waiting.first->deadline < due))
        due = server->waiting.first->deadline;
    if (server->deaf && (!due || server->hears_at < due))
        due = server->hears_at;
    if (!due)
        return -1;
    double left = due - choir__now();
    return left <= 0 ? 0 : left > 3600 ? 3600 * 1000 : (int)(left * 1000) + 1;
}

static void *run(void *arg)
{
    choir_store_server *server = arg;
    struct epoll_event events[EVENTS];
    pthread_mutex_lock(&server->lock);
    while (!server->stopping) {
        int ms = tend(server);
        pthread_mutex_unlock(&server->lock);
        int n = epoll_wait(server->epoll, events, EVENTS, ms);
        pthread_mutex_lock(&server->lock);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &server->listener)
                take_in(server);
            else if (events[i].data.ptr != &server->stop)
                serve(server, events[i].data.ptr, events[i].events);
        }
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* --- from outside --- */

static choir_status check(const choir_store_opts *o)
{
    if (o->port < 0 || o->port > 65535)
        return choir__error(CHOIR_ERR_ARGUMENT, "port %d: want 0 to 65535", o->port);
    if (o->clients_max < 1 || o->keys_max < 1 || o->bytes_max < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store for %d clients, %d keys, %zu bytes: want 1 or more of each",
            o->clients_max, o->keys_max, o->bytes_max);
    return CHOIR_OK;
}

static choir_status listen_at(choir_store_server *server, const choir__address *a)
{
    char text[160], holder[160];
    if (!server->keyed && !choir__net_is_here(a))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store at %s can be reached from other machines, which needs a key: name a key "
            "file (mode 0600), or bind to 127.0.0.1",
            choir__net_text(a, text));
    server->listener = choir__net_listen(a);
    if (server->listener >= 0)
        return CHOIR_OK;
    choir__net_text(a, text);
    if (errno == EADDRINUSE && choir__net_is_unix(a))
        return choir__error(CHOIR_ERR_IO, "%s is in use by another process", text);
    if (errno == EADDRINUSE)
        return choir__error(CHOIR_ERR_IO,
            "cannot listen at %s: the port is in use by %s; choose another, or 0 for a free "
            "one",
            text, choir__net_holder(choir__net_port(a), holder));
    return choir__error(CHOIR_ERR_IO, "cannot listen at %s: %s", text, strerror(errno));
}

static choir_status open_listener(choir_store_server *server, const choir_store_opts *opts)
{
    choir__address found[CHOIR__ADDRESSES_MAX], self;
    char why[200];
    bool again;
    int count = choir__net_resolve(opts->bind, opts->port, true, found, why, &again);
    choir_status status = CHOIR_OK;
    if (!count)
        return choir__error(CHOIR_ERR_ARGUMENT, "cannot listen at '%s': %s", opts->bind, why);
    for (int i = 0; i < count && server->listener < 0; i++)
        status = listen_at(server, &found[i]);
    if (server->listener < 0)
        return status;
    if (choir__net_self(server->listener, &self))
        server->port = choir__net_port(&self);
    return CHOIR_OK;
}

static choir_status start(choir_store_server *server)
{
    struct epoll_event listener = {.events = EPOLLIN, .data.ptr = &server->listener};
    struct epoll_event stop = {.events = EPOLLIN, .data.ptr = &server->stop};
    sigset_t all, before;
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll < 0 || server->stop < 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &listener) ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->stop, &stop))
        return choir__error(CHOIR_ERR_IO, "cannot serve a store: %s", strerror(errno));
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&server->thread, NULL, run, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return choir__error(CHOIR_ERR_IO, "no thread for the store: %s", strerror(error));
    pthread_setname_np(server->thread, "choir-store");
    return CHOIR_OK;
}

static void close_descriptors(choir_store_server *server)
{
    int *fds[] = {&server->listener, &server->epoll, &server->stop};
    for (size_t i = 0; i < CHOIR_COUNT(fds); i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

/* The sessions do not end here: what their clients do next is the parent's to see. */
static void in_child(void *self)
{
    choir_store_server *server = self;
    list *lists[] = {&server->waiting, &server->open};
    for (size_t i = 0; i < CHOIR_COUNT(lists); i++)
        for (client *c = lists[i]->first; c; c = c->next) {
            close(c->fd);
            c->fd = -1;
        }
    close_descriptors(server);
    server->forked = true;
}

static void dismantle(choir_store_server *server)
{
    list *lists[] = {&server->waiting, &server->open};
    for (size_t i = 0; i < CHOIR_COUNT(lists); i++)
        while (lists[i]->first) {
            client *c = lists[i]->first;
            c->session.goodbye = true; /* nobody is left to read the wills */
            if (c->fd >= 0)
                close(c->fd);
            choir__session_end(&c->session);
            leave(c);
            free(c);
        }
    free_gone(server);
    close_descriptors(server);
    choir__hub_free(&server->hub);
    pthread_mutex_destroy(&server->lock);
    sodium_memzero(&server->key, sizeof server->key);
    free(server);
}

choir_status choir__store_serve(
    choir_store_opts opts, const choir__key *key, choir_store_server **server)
{
    if (check(&opts))
        return CHOIR_ERR_ARGUMENT;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    choir_store_server *s = choir__calloc(1, sizeof *s);
    s->listener = s->epoll = s->stop = -1;
    s->clients_max = opts.clients_max;
    s->keyed = key;
    if (key)
        s->key = *key;
    pthread_mutex_init(&s->lock, NULL);
    choir__hub_init(&s->hub, (size_t)opts.keys_max, opts.bytes_max);
    choir_status status = open_listener(s, &opts);
    if (!status)
        status = start(s);
    if (status) {
        int why = errno;
        dismantle(s);
        errno = why;
        return status;
    }
    s->forkable = (choir__forkable){.lock = &s->lock, .in_child = in_child, .self = s};
    choir__forkable_add(&s->forkable);
    *server = s;
    return CHOIR_OK;
}

choir_status choir_store_serve(choir_store_opts opts, choir_store_server **server)
{
    choir__key key;
    bool given;
    choir_status status = choir__store_key(&opts, &key, &given);
    if (!status)
        status = choir__store_serve(opts, given ? &key : NULL, server);
    sodium_memzero(&key, sizeof key);
    return status;
}

int choir_store_port(const choir_store_server *server)
{
    return server->port;
}

const char *choir__store_address(const choir_store_server *server, char host[160])
{
    choir__address self;
    if (!choir__net_self(server->listener, &self))
        snprintf(host, 160, "127.0.0.1");
    else
        choir__net_host(&self, host);
    return host;
}

int choir__store_clients(choir_store_server *server)
{
    pthread_mutex_lock(&server->lock);
    int count = server->open.count;
    pthread_mutex_unlock(&server->lock);
    return count;
}

long choir__store_failures(choir_store_server *server)
{
    pthread_mutex_lock(&server->lock);
    long total = server->failures.total;
    pthread_mutex_unlock(&server->lock);
    return total;
}

void choir_store_server_free(choir_store_server *server)
{
    if (!server)
        return;
    choir__forkable_remove(&server->forkable);
    if (!server->forked) {
        uint64_t one = 1;
        pthread_mutex_lock(&server->lock);
        server->stopping = true;
        pthread_mutex_unlock(&server->lock);
        if (write(server->stop, &one, sizeof one) < 0) {
            /* the counter is full of reasons to wake up */
        }
        pthread_join(server->thread, NULL);
    }
    dismantle(server);
}
