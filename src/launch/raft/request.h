/* Requests to the leader, and the agents' signs of life that come with them; parts of
 * server.c. */
#ifndef CHOIR_LAUNCH_RAFT_REQUEST_H
#define CHOIR_LAUNCH_RAFT_REQUEST_H

#include "launch/raft/links.h"
#include "launch/raft/wire.h"

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
    char address[CHOIR__LINK_ADDRESS];
} choir__received;

typedef struct choir__answer {
    uint64_t seq;
    bool leads, mine;
    int64_t number;
    uint64_t leader; /* the leader, if this agent does not lead; 0: unknown */
    char address[CHOIR__LINK_ADDRESS];
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

#endif
