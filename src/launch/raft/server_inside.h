/* The server's own struct, which server.c (the thread, and what the ledger asks of it) and
 * leader.c (its duties while it leads) and answers.c (what both send) share. */
#ifndef CHOIR_LAUNCH_RAFT_SERVER_INSIDE_H
#define CHOIR_LAUNCH_RAFT_SERVER_INSIDE_H

#include <pthread.h>

#include "launch/raft/entries.h"
#include "launch/raft/links.h"
#include "launch/raft/memory.h"
#include "launch/raft/request.h"
#include "launch/raft/server.h"

/* An agent that this one has heard of. */
typedef struct choir__ear {
    uint64_t id;
    double heard_at; /* time of its last request, or when this server began to lead */
    bool gone;       /* connections ended because the agent died */
    char address[CHOIR__LINK_ADDRESS];
} choir__ear;

struct choir__raft_server {
    pthread_t thread;
    pthread_mutex_t lock; /* held by the thread, but while it polls */
    pthread_cond_t news;  /* an entry, an answer, or the end */
    int wake;             /* an eventfd */
    bool started, closing, closed, retires;

    uint64_t id;
    char host[CHOIR__HOST_TEXT], address[CHOIR__LINK_ADDRESS];
    choir__links *links;
    choir__raft_memory memory;
    choir__entries entries;
    struct raft raft;
    double next_tick;
    int voters; /* voters in the last configuration that was decided */

    /* as a client */
    uint64_t seq, first_id; /* number of the agent that was called first */
    uint64_t hint;          /* leader in the last answer; 0: unknown */
    char hint_address[CHOIR__LINK_ADDRESS];
    choir__raft_request *requests;
    choir__raft_request proof; /* the thread's own */
    double proven_at;          /* sending time of the question that was answered last */

    /* as the leader */
    double led_since; /* 0: does not lead */
    int ear_count;
    choir__ear *ears;
    bool changing; /* a change of the configuration is under way */
    struct raft_change change;
    struct choir__proving *waiting; /* questions that came since the last barrier began */
    bool proving;                   /* a barrier is under way */
};

/* --- answers.c --- */

/* A message begins with its kind. */
enum { RAFT_MESSAGE = 1, REQUEST, ANSWER };

/* Sends the bytes to an agent and frees them; address: NULL where it is unknown. Returns
 * whether there is a connection to send on. */
bool choir__raft_post(
    choir__raft_server *s, uint64_t to, const char *address, choir__bytes *bytes);
/* Completes this agent's own request that `answer` answers. */
void choir__raft_settle(choir__raft_server *s, uint64_t from, const choir__answer *answer);
/* Sends an answer to an agent, whose address may be unknown, or settles this agent's request.
 */
void choir__raft_tell(choir__raft_server *s, uint64_t to, const choir__answer *answer);

/* --- leader.c --- */

choir__ear *choir__raft_ear(choir__raft_server *s, uint64_t id); /* NULL: none */
/* Takes a request of another agent, or of this one. */
void choir__raft_serve(choir__raft_server *s, const choir__received *q);
void choir__raft_gone(choir__raft_server *s, uint64_t id);
/* Called after everything that libraft does: whether this server leads may have changed. */
void choir__raft_notice(choir__raft_server *s);
/* Answers questions and arranges the votes, while this server leads. */
void choir__raft_lead(choir__raft_server *s);
double choir__raft_quiet(const choir__raft_server *s, const choir__ear *e);
/* Answers the questions that wait: this server does not lead. */
void choir__raft_refuse_all(choir__raft_server *s);

#endif
