/* The server's own struct, which server.c (the thread, and what the ledger asks of it) and
 * leader.c (its duties while it leads) and answers.c (what both send) share. */
#ifndef CHOIR_LAUNCH_RAFT_SERVER_INSIDE_H
#define CHOIR_LAUNCH_RAFT_SERVER_INSIDE_H

#include <pthread.h>
#include <raft.h>
#include "launch/raft/entries.h"
#include "launch/raft/connections.h"
#include "launch/raft/server.h"
#include "launch/raft/wire.h"

/* The storage of libraft: a raft_io whose log is in memory alone.
 *
 * Raft asks for a disk so that a server that comes back remembers its votes. Here no server
 * comes back: an agent that was started again is a new server, with a new random id, and the
 * old one is removed. So nothing is written, and nothing can be forgotten. */

typedef struct choir__raft_memory {
    struct raft_io io;
    /* Sends a message; false: it is lost. Set by the owner. */
    bool (*send)(void *arg, const struct raft_message *message);
    void *arg;
    /* the rest is the object's own */
    raft_io_tick_cb tick;
    raft_io_recv_cb receive;
    raft_io_close_cb closed;
    struct choir__raft_done *first, *last; /* calls that are still to be answered */
    struct raft_buffer founding;           /* the encoded configuration of a new cluster */
    struct raft_snapshot snapshot;         /* index 0: none */
    struct raft_buffer snapshot_data;
} choir__raft_memory;

void choir__raft_memory_init(choir__raft_memory *m);
void choir__raft_memory_free(choir__raft_memory *m);
/* Answers the calls that libraft has made: their callbacks must not run inside the calls.
 * Returns false if no call was waiting. */
bool choir__raft_memory_answer(choir__raft_memory *m);

/* Requests to the leader, and the agents' signs of life that come with them; parts of
 * server.c. */

typedef enum choir__asked { CHOIR__PROVE, CHOIR__APPEND } choir__asked;

/* A request, and after `done` its answer. */
typedef struct choir__raft_request {
    struct choir__raft_request *next;
    uint64_t seq;
    choir__asked asked;
    int64_t n; /* argument of CHOIR__APPEND */
    const char *text;
    double made_at, sent_at; /* 0: not sent */
    int tries;
    bool done, mine;
    int64_t number; /* number of the newest entry */
} choir__raft_request;

/* A request as the leader receives it. */
typedef struct choir__received {
    uint64_t from, seq;
    choir__asked asked;
    int64_t n;
    const char *text; /* (bytes) in the message */
    size_t bytes;
    char address[CHOIR__CONNECTION_ADDRESS];
} choir__received;

typedef struct choir__answer {
    uint64_t seq;
    bool leads, mine;
    int64_t number;
    uint64_t leader; /* the leader, if this agent does not lead; 0: unknown */
    char address[CHOIR__CONNECTION_ADDRESS];
} choir__answer;

static inline void choir__request_write(
    choir__bytes *b, const choir__raft_request *r, const char *address)
{
    const char *text = r->text ? r->text : "";
    choir__write_number(b, r->seq);
    choir__write_number(b, r->asked);
    choir__write_number(b, (uint64_t)r->n);
    choir__write_text(b, text, strlen(text));
    choir__write_text(b, address, strlen(address));
}

static inline bool choir__request_read(choir__reader *r, choir__received *q)
{
    q->seq = choir__read_number(r);
    q->asked = choir__read_number(r) == CHOIR__PROVE ? CHOIR__PROVE : CHOIR__APPEND;
    q->n = (int64_t)choir__read_number(r);
    q->text = choir__read_text(r, &q->bytes);
    choir__copy_text(r, q->address, sizeof q->address);
    return !r->bad;
}

static inline void choir__answer_write(choir__bytes *b, const choir__answer *a)
{
    choir__write_number(b, a->seq);
    choir__write_number(b, a->leads);
    choir__write_number(b, a->mine);
    choir__write_number(b, (uint64_t)a->number);
    choir__write_number(b, a->leader);
    choir__write_text(b, a->address, strlen(a->address));
}

static inline bool choir__answer_read(choir__reader *r, choir__answer *a)
{
    a->seq = choir__read_number(r);
    a->leads = choir__read_number(r);
    a->mine = choir__read_number(r);
    a->number = (int64_t)choir__read_number(r);
    a->leader = choir__read_number(r);
    choir__copy_text(r, a->address, sizeof a->address);
    return !r->bad;
}

/* An agent that this one has heard of. */
typedef struct choir__peer_sign {
    uint64_t id;
    double heard_at; /* time of its last request, or when this server began to lead */
    bool gone;       /* connections ended because the agent died */
    char address[CHOIR__CONNECTION_ADDRESS];
} choir__peer_sign;

struct choir__raft_server {
    pthread_t thread;
    pthread_mutex_t lock; /* held by the thread, but while it polls */
    pthread_cond_t news;  /* an entry, an answer, or the end */
    int wake;             /* an eventfd */
    bool started, closing, closed, retires;

    uint64_t id;
    char host[CHOIR__HOST_TEXT], address[CHOIR__CONNECTION_ADDRESS];
    choir__connections *connections;
    choir__raft_memory memory;
    choir__entries entries;
    struct raft raft;
    double next_tick;
    int voters; /* voters in the last configuration that was decided */

    /* as a client */
    uint64_t seq, first_id; /* number of the agent that was called first */
    uint64_t hint;          /* leader in the last answer; 0: unknown */
    char hint_address[CHOIR__CONNECTION_ADDRESS];
    choir__raft_request *requests;
    choir__raft_request proof; /* the thread's own */
    double proven_at;          /* sending time of the question that was answered last */

    /* as the leader */
    double led_since; /* 0: does not lead */
    int sign_count;
    choir__peer_sign *signs;
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

choir__peer_sign *choir__raft_sign(choir__raft_server *s, uint64_t id); /* NULL: none */
/* Takes a request of another agent, or of this one. */
void choir__raft_serve(choir__raft_server *s, const choir__received *q);
void choir__raft_gone(choir__raft_server *s, uint64_t id);
/* Called after everything that libraft does: whether this server leads may have changed. */
void choir__raft_notice(choir__raft_server *s);
/* Answers questions and arranges the votes, while this server leads. */
void choir__raft_lead(choir__raft_server *s);
double choir__raft_silent_s(const choir__raft_server *s, const choir__peer_sign *e);
/* Answers the questions that wait: this server does not lead. */
void choir__raft_refuse_all(choir__raft_server *s);

#endif
