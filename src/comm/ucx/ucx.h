/* Groups over UCX: declarations that the files of this folder share.
 *
 * A process has one *net* for each group that it was initialized with: a UCX worker, and one
 * endpoint per rank. Sub-groups share their parent's net. A message is a UCX active message: a
 * header of 48 bytes (the group, the sender, a number that counts the messages of this pair,
 * and the stamp of the call it belongs to), and the data, which UCX delivers with the header
 * or, for large ones, fetches into place once the receive is known.
 *
 *     send(peer)    -> header.number = sent++  ->  on_message: is receive `number` posted?
 *     receive(peer) -> number = posted++           yes: compare stamps, deliver
 *                                                  no:  keep it (early) until it is
 *
 * Messages of a pair therefore meet receives in order, in whatever order UCX delivers them, and
 * ranks that make different calls notice it at the first message.
 *
 *   worker.c    UCX's configuration               messages.c  send, receive
 *   join.c      addresses, endpoints              match.c     messages meet their receives
 *   net.c       open, close                       ops.c       operations that UCX works on
 *   engine.c    groups of a net                   wait.c      progress, sleep, missing peers
 *   endpoint.c  the end of an endpoint            verdict.c   one sentence for all ranks
 *
 * Groups of one net may run at the same time on different threads: the net's lock guards
 * everything here, UCX included. Only `bytes` of the base is read without it. */
#ifndef CHOIR_UCX_H
#define CHOIR_UCX_H

#include <pthread.h>
#include <ucp/api/ucp.h>

#include "comm/engine.h"

typedef struct choir__ucx choir__ucx;
typedef struct choir__ucx_net choir__ucx_net;

typedef enum choir__ucx_kind {
    CHOIR__UCX_DATA,
    CHOIR__UCX_WAITING, /* the sender waits for the receiver, in the stamped call */
    CHOIR__UCX_BYE,     /* the sender left the group after `number` messages to the receiver */
    CHOIR__UCX_FAILED,  /* carries the sentence of a failure, in case the store cannot */
    CHOIR__UCX_KINDS
} choir__ucx_kind;

typedef struct choir__ucx_header {
    uint64_t group;
    choir__stamp stamp;
    uint32_t number;
    int32_t from; /* the sender's rank in the group */
    uint32_t kind, zero;
} choir__ucx_header;

/* A send in progress, or a receive that was posted. */
typedef struct choir__ucx_op {
    /* the group's list of operations in progress, or of free ones */
    struct choir__ucx_op *next, *before;
    choir__ucx *group;
    choir__request *request; /* NULL: the caller no longer waits for it */
    void *data;              /* receive: the destination */
    size_t bytes;
    int peer;
    bool matched; /* UCX works on it: its memory is in use until the callback */
    choir__ucx_header header;
} choir__ucx_op;

/* A message whose receive was not posted yet. */
typedef struct choir__ucx_early {
    struct choir__ucx_early *next;
    choir__ucx_header header;
    void *data;
    size_t bytes;
    bool rendezvous,
        ours; /* rendezvous: the sender still has the data; ours: data is on the heap */
} choir__ucx_early;

/* State of a group about one of its ranks. */
typedef struct choir__ucx_peer {
    int net_rank;
    uint32_t sent, posted;                         /* numbers of messages, and of receives */
    choir__ucx_op *receives_first, *receives_last; /* posted, not matched; linked by `next` */
    choir__ucx_early *early;
    bool left, heard;
    uint32_t left_after; /* number of messages that the peer sent before it left */
    choir__stamp last;   /* stamp of the latest message received */
    double heard_at;     /* time of that message */
} choir__ucx_peer;

struct choir__ucx {
    choir__engine base;
    choir__ucx_net *net;
    choir__ucx *next; /* next group of the net */
    uint64_t id;
    choir__ucx_peer *peers;   /* (world) */
    choir__ucx_op *under_way; /* sends, and receives that were matched */
    choir__stamp now;         /* stamp of the latest send or receive */
    bool waiting;             /* this rank waits in the call of `now` */
    int wake_fd; /* eventfd that another thread signals when it has moved a message of this
                    group */
    bool sleeping;
    choir_status found; /* a mismatch found by a callback; wait() makes it the verdict */
    char found_text[2 * CHOIR__STAMP_TEXT + 128];
    /* sentence: this rank's verdict; told: the verdict received from the lowest rank */
    char sentence[544], told[544];
    int told_by;
    char prefix[96]; /* prefix of this group's keys in the store */
};

typedef struct choir__ucx_far {
    ucp_ep_h ep;
    ucs_status_t lost; /* UCX's error when the connection broke; UCS_OK: connected */
    int pid_fd;        /* pidfd of a process on this machine; -1: none */
    bool gone;         /* the process had ended before it could be watched */
} choir__ucx_far;

struct choir__ucx_net {
    pthread_mutex_t lock;
    ucp_context_h context;
    ucp_worker_h worker;
    int efd; /* readable when the worker has work */
    int rank, world;
    choir__ucx_far *far; /* (world) */
    int losses;          /* number of connections lost so far */
    choir__ucx *groups;
    /* messages for groups that this rank has not made yet */
    struct choir__ucx_early *strangers;
    choir__ucx_op *free_ops;
    choir_store *store;
    bool store_lost,
        store_silent; /* store_lost: unusable; store_silent: because it did not answer */
    /* rank whose last will was read most recently; -1: none */
    int dead_rank;
    bool crowded;    /* more ranks on this machine than cores: no spinning */
    char prefix[64]; /* prefix of keys in the store */
};

/* --- worker.c --- */
choir_status choir__ucx_make_worker(choir__ucx_net *net, int nodes);
/* sets the error message */
choir_status choir__ucx_trouble(const char *what, ucs_status_t status);

/* --- join.c --- */
choir_status choir__ucx_join(choir__ucx_net *net, const choir__meeting *meeting);
bool choir__ucx_gone(
    const choir__ucx_far *far); /* true if the process is known to have ended */

/* --- net.c --- */
choir_status choir__ucx_net_open(const choir__meeting *meeting, choir__ucx_net **net);
/* called once no group uses the net */
void choir__ucx_net_close(choir__ucx_net *net, bool in_order);

/* --- endpoint.c --- */
void choir__ucx_drop(choir__ucx_net *net, int net_rank); /* closes an endpoint by force */
/* choir__ucx_close_endpoint begins to close an endpoint; choir__ucx_progress_until completes
 * such a request, or gives up on it at time `until`. */
ucs_status_ptr_t choir__ucx_close_endpoint(choir__ucx_far *far, bool by_force);
void choir__ucx_progress_until(choir__ucx_net *net, void *request, double until);

/* --- ops.c; under the lock --- */
choir__ucx_op *choir__ucx_op_take(choir__ucx *g, int peer, choir__request *request);
void choir__ucx_op_free(choir__ucx_net *net, choir__ucx_op *op);
/* call it before the operation is handed to UCX */
void choir__ucx_op_depart(choir__ucx_op *op);
void choir__ucx_op_arrive(choir__ucx_op *op); /* call it after UCX has returned the operation */
void choir__ucx_op_end(choir__ucx_op *op, ucs_status_t status);
void choir__ucx_on_sent(void *ucx_request, ucs_status_t status, void *op);
void choir__ucx_on_received(void *ucx_request, ucs_status_t status, size_t bytes, void *op);
void choir__ucx_wake(choir__ucx *g);
/* afterwards the callers' memory is not accessed any more */
void choir__ucx_abandon(choir__ucx *g);

/* --- messages.c --- */
choir_status choir__ucx_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__ucx_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
/* Sends a message without data (FAILED carries the sentence), best effort. Under the lock. */
void choir__ucx_tell(choir__ucx *g, int peer, choir__ucx_kind kind);

/* --- match.c; under the lock --- */
ucs_status_t choir__ucx_on_message(void *arg, const void *header, size_t header_bytes,
    void *data, size_t bytes, const ucp_am_recv_param_t *param);
/* true: op's message came before op */
bool choir__ucx_take_early(choir__ucx *g, choir__ucx_op *op);
void choir__ucx_let_go(choir__ucx_net *net, choir__ucx_early *early);
/* messages that came before this rank had made the group */
void choir__ucx_adopt_strangers(choir__ucx *g);
void choir__ucx_forget(choir__ucx *g); /* drops messages that no receive will match */

/* --- wait.c --- */
choir_status choir__ucx_wait(choir__engine *engine, choir__request *requests, int count);
choir_status choir__ucx_look(choir__engine *engine, const choir__stamp *during, bool needed);

/* --- verdict.c: on the waiting thread, without the lock --- */

/* Makes the failure every rank's, unless another rank failed first; then this rank takes that
 * sentence. */
choir_status choir__ucx_fail(choir__ucx *g, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sends the failure to all ranks, since the store may disappear with this rank. Under the
 * lock. */
void choir__ucx_spread(choir__ucx *g);
/* Checks whether other ranks have failed, and answers a question in the store. Returns their
 * failure, or CHOIR_OK. */
choir_status choir__ucx_ask_store(choir__ucx *g, const bool *awaited);
/* Called at the timeout: finds the late ranks. CHOIR_OK: all ranks arrived after all. */
choir_status choir__ucx_late(choir__ucx *g, const bool *awaited);
/* Returns true if the rank's last will was carried out, or its process has ended. */
bool choir__ucx_dead(choir__ucx *g, int rank);

#endif
