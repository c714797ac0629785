/* Starting and stopping a server, and closing the copy that a forked child has. */
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/hold_signals.h"
#include "launch/store/net.h"
#include "launch/store/server.h"

static choir_status check(const choir_store_opts *o)
{
    if (o->port < 0 || o->port > 65535)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a store: expected a port from 0 to 65535, got %d", o->port);
    if (o->clients_max < 1 || o->keys_max < 1 || o->bytes_max < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store: expected 1 or more of each, got %d clients, %d keys, %zu bytes",
            o->clients_max, o->keys_max, o->bytes_max);
    return CHOIR_OK;
}

static choir_status listen_at(choir_store_server *server, const choir__address *a)
{
    char text[160], holder[160];
    if (!server->key && !choir__net_is_here(a))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a store at %s can be reached from other machines, which needs a key: name its "
            "file (--key-file or CHOIR_KEY_FILE, mode 0600), or listen at 127.0.0.1",
            choir__net_text(a, text));
    server->listener = choir__net_listen(a);
    if (server->listener >= 0)
        return CHOIR_OK;
    choir__net_text(a, text);
    if (errno == EADDRINUSE && choir__net_is_unix(a))
        return choir__error(CHOIR_ERR_IO, "%s is in use by another process", text);
    if (errno == EADDRINUSE)
        return choir__error(CHOIR_ERR_IO,
            "cannot listen at %s: the port is in use by %s; choose another", text,
            choir__net_holder(choir__net_port(a), holder));
    return choir__error(CHOIR_ERR_IO, "cannot listen at %s: %s", text, choir__why(errno));
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
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll < 0 || server->stop < 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &listener) ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->stop, &stop))
        return choir__error(CHOIR_ERR_IO, "cannot serve a store: %s", choir__why(errno));
    int error = choir__thread_start(&server->thread, choir__server_run, server);
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "cannot start the store's thread: %s", choir__why(error));
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

/* The server's thread is in the middle of nothing while the process forks. */
static void before_fork(void *self)
{
    pthread_mutex_lock(&((choir_store_server *)self)->lock);
}

static void in_parent(void *self)
{
    pthread_mutex_unlock(&((choir_store_server *)self)->lock);
}

/* Closes the child's descriptors. The sessions do not end here: their clients talk to the
 * parent. */
static void in_child(void *self)
{
    choir_store_server *server = self;
    pthread_mutex_unlock(&server->lock);
    choir__clients *lists[] = {&server->waiting, &server->open};
    for (size_t i = 0; i < CHOIR_COUNT(lists); i++)
        for (choir__client *c = lists[i]->first; c; c = c->next) {
            close(c->fd);
            c->fd = -1;
        }
    close_descriptors(server);
    server->forked = true;
}

static void dismantle(choir_store_server *server)
{
    choir__clients *lists[] = {&server->waiting, &server->open, &server->gone};
    for (size_t i = 0; i < CHOIR_COUNT(lists); i++)
        while (lists[i]->first) {
            choir__client *c = lists[i]->first;
            c->session.goodbye = true; /* no client is left to read the wills */
            if (c->fd >= 0)
                close(c->fd);
            if (c->list != &server->gone)
                choir__session_end(&c->session);
            choir__client_leave(c);
            free(c);
        }
    close_descriptors(server);
    choir__hub_free(&server->hub);
    pthread_mutex_destroy(&server->lock);
    choir__store_key_free(server->key);
    free(server);
}

choir_status choir__store_serve(
    choir_store_opts opts, const choir__store_key *key, choir_store_server **server)
{
    if (check(&opts) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    choir_store_server *s = choir__calloc(1, sizeof *s);
    s->listener = s->epoll = s->stop = -1;
    s->clients_max = opts.clients_max;
    s->lost_after_s = opts.lost_after_s;
    pthread_mutex_init(&s->lock, NULL);
    choir__hub_init(&s->hub, (size_t)opts.keys_max, opts.bytes_max);
    choir_status status = key ? choir__store_key_new(&s->key) : CHOIR_OK;
    if (s->key)
        *s->key = *key;
    if (status == CHOIR_OK)
        status = open_listener(s, &opts);
    if (status == CHOIR_OK)
        status = start(s);
    if (status != CHOIR_OK) {
        int why = errno;
        dismantle(s);
        errno = why;
        return status;
    }
    s->forkable = (choir__forkable){
        .before = before_fork, .in_parent = in_parent, .in_child = in_child, .self = s};
    choir__forkable_add(&s->forkable);
    *server = s;
    return CHOIR_OK;
}

choir_status choir_store_serve(choir_store_opts opts, choir_store_server **server)
{
    if (!server)
        return choir__missing(__func__, "server");
    choir__store_key *key;
    choir_status status = choir__store_key_given(&opts, &key);
    if (status == CHOIR_OK)
        status = choir__store_serve(opts, key, server);
    choir__store_key_free(key);
    return status;
}

int choir_store_port(const choir_store_server *server)
{
    if (choir__lacks(server, __func__, "store server"))
        return 0;
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

choir__store_failed choir__store_failures(choir_store_server *server)
{
    pthread_mutex_lock(&server->lock);
    choir__store_failed total = server->failures.total;
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
            /* the counter is full, so the thread wakes up anyway */
        }
        pthread_join(server->thread, NULL);
    }
    dismantle(server);
}
