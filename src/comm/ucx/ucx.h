/* Groups over UCX: what the files of this folder share.
 *
 * A process has one *net* for each group it was initialised with: a UCX worker, and an endpoint
 * to every rank. Sub-groups share their parent's net. A message is a UCX active message: a
 * header of 48 bytes (which group, whose, the how manieth between these two, and the stamp of
 * the call it belongs to), and the data, which UCX brings along or, for large ones, fetches
 * into place once the receive is known.
 *
 *     send(peer)    -> header.number = sent++  ->  on_message: is receive `number` posted?
 *     receive(peer) -> number = posted++           yes: compare stamps, deliver
 *                                                  no:  keep it (early) until it is
 *
 * So messages of a pair meet receives in order, whatever order UCX delivers in, and ranks that
 * call different things notice at the first message.
 *
 *   worker.c    what UCX is told                  messages.c  send, receive
 *   join.c      addresses, endpoints              match.c     what comes, and for whom
 *   net.c       open, close                       ops.c       what UCX has in hand
 *   engine.c    groups of a net                   wait.c      progress, sleep, who is missing
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
    CHOIR__UCX_WAITING, /* says: I wait for you, in the call of this stamp */
    CHOIR__UCX_BYE,     /* says: after `number` messages to you I left the group */
    CHOIR__UCX_FAILED,  /* brings the sentence of a failure, where there is no store for it */
    CHOIR__UCX_KINDS
} choir__ucx_kind;

typedef struct choir__ucx_header {
    uint64_t group;
    choir__stamp stamp;
    uint32_t number;
    int32_t from; /* the sender's rank in the group */
    uint32_t kind, zero;
} choir__ucx_header;

/* A send under way, or a receive that was posted. */
typedef struct choir__ucx_op {
    struct choir__ucx_op *next, *before; /* the group's others under way; or free ones */
    choir__ucx *group;
    choir__request *request; /* NULL: nobody waits for it any more */
    void *data;              /* of a receive */
    size_t bytes;
    int peer;
    bool matched; /* UCX has it: its memory is in use until the callback */
    choir__ucx_header header;
} choir__ucx_op;

/* A message whose receive was not posted yet. */
typedef struct choir__ucx_early {
    struct choir__ucx_early *next;
    choir__ucx_header header;
    void *data;
    size_t bytes;
    bool rendezvous, ours; /* the data are still with the sender; are on the heap */
} choir__ucx_early;

/* What a group knows of one of its ranks. */
typedef struct choir__ucx_peer {
    int net_rank;
    uint32_t sent, posted;                         /* messages, and receives */
    choir__ucx_op *receives_first, *receives_last; /* posted, not matched: a queue by `next` */
    choir__ucx_early *early;
    bool left, heard;
    uint32_t left_after; /* it has sent so many */
    choir__stamp last;   /* of the latest message that came; */
    double heard_at;     /* and when */
} choir__ucx_peer;

struct choir__ucx {
    choir__engine base;
    choir__ucx_net *net;
    choir__ucx *next; /* the net's others */
    uint64_t id;
    choir__ucx_peer *peers;   /* (world) */
    choir__ucx_op *under_way; /* sends, and receives that were matched */
    choir__stamp now;         /* what it is doing: the stamp of its latest send or receive */
    bool waiting;             /* and it waits in it */
    int wake_fd;              /* an eventfd: a message of ours was moved by another thread */
    bool sleeping;
    choir_status found; /* a mismatch that a callback found; wait() makes it the verdict */
    char found_text[400];
    char sentence[544], told[544]; /* our verdict, and that of the lowest rank that told one */
    int told_by;
    char prefix[96]; /* of its keys in the store */
};

typedef struct choir__ucx_far {
    ucp_ep_h ep;
    ucs_status_t lost; /* what UCX said when the connection broke; UCS_OK: it stands */
    int pid_fd;        /* of a process on this machine; -1 */
    bool gone;         /* that had ended before */
} choir__ucx_far;

struct choir__ucx_net {
    pthread_mutex_t lock;
    ucp_context_h context;
    ucp_worker_h worker;
    int efd; /* readable when the worker has something to do */
    int rank, world;
    choir__ucx_far *far; /* (world) */
    int losses;          /* how many far ones were lost so far */
    choir__ucx *groups;
    struct choir__ucx_early *strangers; /* for groups that this rank has not made yet */
    choir__ucx_op *free_ops;
    choir_store *store;
    bool store_lost, store_silent; /* no use any more; because it did not answer */
    int dead_rank;                 /* whose last will was read last; -1 */
    bool crowded;                  /* more ranks here than cores: no spinning */
    char prefix[64];               /* of keys in the store */
};

/* --- worker.c --- */
choir_status choir__ucx_make_worker(choir__ucx_net *net, int nodes);
choir_status choir__ucx_trouble(const char *what, ucs_status_t status); /* in words */

/* --- join.c --- */
choir_status choir__ucx_join(choir__ucx_net *net, const choir__meeting *meeting);
bool choir__ucx_gone(
    const choir__ucx_far *far); /* its process has ended, as far as can be told */

/* --- net.c --- */
choir_status choir__ucx_net_open(const choir__meeting *meeting, choir__ucx_net **net);
void choir__ucx_net_close(choir__ucx_net *net, bool in_order); /* once it has no groups */

/* --- endpoint.c --- */
void choir__ucx_drop(choir__ucx_net *net, int net_rank); /* closes an endpoint by force */
/* Begins to close an endpoint, and ends such a request or gives it up at `until`. */
ucs_status_ptr_t choir__ucx_close_endpoint(choir__ucx_far *far, bool by_force);
void choir__ucx_progress_until(choir__ucx_net *net, void *request, double until);

/* --- ops.c; under the lock --- */
choir__ucx_op *choir__ucx_op_take(choir__ucx *g, int peer, choir__request *request);
void choir__ucx_op_free(choir__ucx_net *net, choir__ucx_op *op);
void choir__ucx_op_depart(choir__ucx_op *op); /* UCX is about to have it */
void choir__ucx_op_arrive(choir__ucx_op *op); /* and no longer has */
void choir__ucx_op_end(choir__ucx_op *op, ucs_status_t status);
void choir__ucx_on_sent(void *ucx_request, ucs_status_t status, void *op);
void choir__ucx_on_received(void *ucx_request, ucs_status_t status, size_t bytes, void *op);
void choir__ucx_wake(choir__ucx *g);
void choir__ucx_abandon(choir__ucx *g); /* nothing touches the callers' memory afterwards */

/* --- messages.c --- */
choir_status choir__ucx_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__ucx_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
/* Data-less, best effort. Under the lock. */
void choir__ucx_tell(choir__ucx *g, int peer, choir__ucx_kind kind);

/* --- match.c; under the lock --- */
ucs_status_t choir__ucx_on_message(void *arg, const void *header, size_t header_bytes,
    void *data, size_t bytes, const ucp_am_recv_param_t *param);
bool choir__ucx_take_early(choir__ucx *g, choir__ucx_op *op); /* its message came before it */
void choir__ucx_let_go(choir__ucx_net *net, choir__ucx_early *early);
void choir__ucx_adopt_strangers(choir__ucx *g); /* that came before this rank had made it */
void choir__ucx_forget(choir__ucx *g);          /* what came and nobody will receive */

/* --- wait.c --- */
choir_status choir__ucx_wait(choir__engine *engine, choir__request *requests, int count);
choir_status choir__ucx_look(choir__engine *engine, const choir__stamp *during, bool needed);

/* --- verdict.c: on the waiting thread, without the lock --- */

/* Makes it every rank's failure, unless another was first, whose sentence this rank then takes.
 */
choir_status choir__ucx_fail(choir__ucx *g, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells all of the failure, since the store may go with this rank. Under the lock. */
void choir__ucx_spread(choir__ucx *g);
/* A look at what the others say; not CHOIR_OK if they have failed. Answers who asks. */
choir_status choir__ucx_ask_store(choir__ucx *g, const bool *awaited);
/* The time is over: finds out who is late. CHOIR_OK: all came in the end. */
choir_status choir__ucx_late(choir__ucx *g, const bool *awaited);
/* The rank's last will was carried out, or its process is gone. */
bool choir__ucx_dead(choir__ucx *g, int rank);

#endif
