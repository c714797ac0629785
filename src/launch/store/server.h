/* The server: declarations shared by its thread (server.c) and the functions that start and
 * stop it (serve.c). */
#ifndef CHOIR_LAUNCH_STORE_SERVER_H
#define CHOIR_LAUNCH_STORE_SERVER_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include "base/process/forks.h"
#include "launch/store/net.h"
#include "launch/store/session.h"
#include "launch/store/store.h"

/* Recently failed greetings, by address. The server rejects an address that fails too often for
 * a moment, without a greeting: guessing a key is hopeless, but each attempt costs the server a
 * key exchange. All users of a machine share its loopback address, so this user's processes
 * have a count of their own there, and another user's failures do not keep them out. */

enum { CHOIR__FAILURES_MAX = 8, CHOIR__FAILURE_SLOTS = 256 };
static const double choir__failures_s = 2; /* the window in which failures are counted */

typedef struct choir__failures {
    struct {
        uint64_t from;
        double since;
        int count;
        /* indexed by address; addresses that share a slot replace each other */
    } slots[CHOIR__FAILURE_SLOTS];
    choir__store_failed total;
} choir__failures;

/* Returns the hash of an IPv4 address, or of the half of an IPv6 address that names a
 * network. */
static inline uint64_t choir__failures_from(const choir__address *a)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)&a->at)->sin6_addr;
    uint64_t from = 0;
    if (a->at.ss_family == AF_INET)
        memcpy(&from, &((const struct sockaddr_in *)&a->at)->sin_addr, 4);
    else if (a->at.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        memcpy(&from, six->s6_addr + 12, 4);
    else if (a->at.ss_family == AF_INET6)
        memcpy(&from, six, sizeof from);
    return from * UINT64_C(0x9E3779B97F4A7C15);
}

static inline bool choir__failures_many(const choir__failures *f, uint64_t from, double now)
{
    int slot = (int)(from >> 56);
    return f->slots[slot].from == from && f->slots[slot].count >= CHOIR__FAILURES_MAX &&
           now - f->slots[slot].since < choir__failures_s;
}

/* Returns what this user's processes have in place of their address. */
static inline uint64_t choir__failures_from_us(uint64_t address)
{
    return ~address;
}

/* keys: for want of the job's key. */
static inline void choir__failures_note(
    choir__failures *f, uint64_t from, bool keys, double now)
{
    int slot = (int)(from >> 56);
    *(keys ? &f->total.keys : &f->total.strangers) += 1;
    if (f->slots[slot].from != from || now - f->slots[slot].since >= choir__failures_s) {
        f->slots[slot].from = from;
        f->slots[slot].since = now;
        f->slots[slot].count = 0;
    }
    f->slots[slot].count++;
}

typedef struct choir__client {
    choir__session session;
    struct choir__client *next, *prev;
    struct choir__clients *list;
    int fd;             /* -1: closed */
    uint32_t events;    /* registered with epoll */
    bool open, leaving; /* greeted; to be disconnected once `out` is sent */
    bool shut;          /* disconnected */
    size_t held;        /* received bytes of a frame that is not complete */
    double deadline;    /* when its wait ends, while it is on `waiting` */
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
