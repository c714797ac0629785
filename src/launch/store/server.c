/* The server: one thread, which never blocks on a client.
 *
 * A connection is `waiting` until its greeting is done, and again while it is being closed: for
 * five seconds at most, and at most 1024 of them; then the oldest makes room. So a silent
 * connection delays no other and costs little. The server reads nothing from an open client
 * that has not accepted its last reply, which bounds the memory held for it.
 *
 * Without a key the server listens only on this machine, and talks only to processes of its own
 * user id (choir__net_peer). If that cannot be determined, it refuses.
 *
 * `lock` is held while the thread works and free while it sleeps, for the sake of fork: a child
 * finds the server at rest and closes its copies of the descriptors. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "launch/store/server.h"

enum { WAITING_MAX = 1024, READ_BYTES = 16 * 1024, EVENTS = 64 };

static const double patience_s = 5; /* for a connection that is waiting */
static const double pause_s = 0.1;  /* without accepting, while there are no descriptors */

/* --- lists --- */

void choir__client_leave(choir__client *c)
{
    choir__clients *l = c->list;
    if (!l)
        return;
    *(c->prev ? &c->prev->next : &l->first) = c->next;
    *(c->next ? &c->next->prev : &l->last) = c->prev;
    c->next = c->prev = NULL;
    c->list = NULL;
    l->count--;
}

static void enter(choir__clients *l, choir__client *c)
{
    choir__client_leave(c);
    c->prev = l->last;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
    c->list = l;
    l->count++;
}

/* --- one client --- */

static void watch(choir_store_server *server, choir__client *c, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (c->events != events)
        epoll_ctl(server->epoll, c->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e);
    c->events = events;
}

/* Disconnects a client. Its memory lasts until the current events are handled. */
static void drop(choir_store_server *server, choir__client *c)
{
    if (c->fd < 0)
        return;
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, NULL); /* a forked child may still have it */
    close(c->fd);
    c->fd = -1;
    server->held -= c->held;
    c->held = 0;
    choir__session_end(&c->session);
    enter(&server->gone, c);
}

static bool flush(choir__client *c)
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

/* Sends the remaining output, then waits briefly for the other side to close: closing first,
 * with unread input, would discard our output. */
static void hang_up(choir_store_server *server, choir__client *c)
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

static void note_failure(choir_store_server *server, choir__client *c)
{
    switch (c->session.channel.refusal) {
    case CHOIR__REFUSAL_KEY_NEEDED:
    case CHOIR__REFUSAL_NO_KEY:
    case CHOIR__REFUSAL_WRONG_KEY:
        choir__failures_note(&server->failures, c->from, true, choir__now());
        break;
    case CHOIR__REFUSAL_USER:
    case CHOIR__REFUSAL_NOT_STORE:
    case CHOIR__REFUSAL_GARBLED:
        choir__failures_note(&server->failures, c->from, false, choir__now());
        break;
    default: break;
    }
}

/* Handles received requests, as long as the client accepts the replies. */
static void work(choir_store_server *server, choir__client *c)
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

/* Counts what the client's unfinished frame holds. The bytes of all unfinished frames together
 * have the limit of the table: a client that exceeds it is dropped. */
static void count_held(choir_store_server *server, choir__client *c)
{
    size_t now = choir__bytes_left(&c->session.channel.in);
    server->held += now - c->held;
    c->held = now;
    if (server->held > server->hub.table.bytes_max + CHOIR__STORE_FRAME_MAX)
        drop(server, c);
}

static void serve(choir_store_server *server, choir__client *c, uint32_t events)
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
    if (c->fd >= 0)
        count_held(server, c);
}

/* --- new clients --- */

static bool is_this_machine(int fd, const choir__address *address, uint64_t from)
{
    choir__address self;
    return choir__net_is_here(address) ||
           (choir__net_self(fd, &self) && choir__failures_from(&self) == from);
}

/* Returns the caller by whom failures are counted. The kernel is asked for a local caller's
 * user only once callers of its address have failed often. */
static uint64_t caller(const choir_store_server *server, int fd, const choir__address *address)
{
    uint64_t from = choir__failures_from(address);
    bool ours = server->key && choir__failures_many(&server->failures, from, choir__now()) &&
                is_this_machine(fd, address, from) && choir__net_peer(fd) == CHOIR__OURS;
    return ours ? choir__failures_from_us(from) : from;
}

static choir__refusal judge(choir_store_server *server, int fd, uint64_t from)
{
    if (server->open.count >= server->clients_max)
        return CHOIR__REFUSAL_FULL;
    if (!server->key)
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
        choir__net_lost_after(fd, server->lost_after_s);
        if (server->waiting.count >= WAITING_MAX)
            drop(server, server->waiting.first);
        choir__client *c = choir__calloc(1, sizeof *c);
        c->fd = fd;
        c->from = caller(server, fd, &from);
        c->deadline = choir__now() + patience_s;
        choir__session_init(&c->session, &server->hub, server->key);
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
        choir__client *c = s->owner;
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
    for (choir__client *c = server->gone.first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    server->gone = (choir__clients){0};
}

/* Does all that is due. Returns the milliseconds until the next deadline; -1: none. */
static int tend(choir_store_server *server)
{
    double now = choir__now(), due = choir__hub_expire(&server->hub, now);
    while (server->waiting.first && server->waiting.first->deadline <= now)
        drop(server, server->waiting.first);
    answer_woken(server); /* including those whom the dropped clients' wills have woken */
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

void *choir__server_run(void *arg)
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
