/* The engine over MPI: declarations that the files of this folder share.
 *
 * A call runs in two parts. First all ranks *enter* it: each sends every other its stamp, and a
 * small call's data with it, so that a call of a few KiB is over after one exchange of
 * messages. When the stamps agree, larger data move by the messages of a schedule
 * (comm/message). MPI's own non-blocking reductions run on request.
 *
 * No call here blocks in MPI while a peer may be late: a waiter tests, and between tests spins,
 * then yields, then naps. After a long wait it also reads its letters. Four kinds of *letters*
 * travel beside the data: HERE ("I wait in call n", the answer to another rank's HERE), FAILED
 * (the sentence of the rank that failed first), LEFT (the group was freed), and HELLO, with
 * which ranks meet. At a timeout, the ranks that sent no HERE are the late ones.
 *
 *   library.c  MPI's own start and end    enter.c        stamps, small data
 *   open.c     groups and sub-groups      collectives.c  a call: small, or by messages
 *   wait.c     tests, timeouts            native.c       by MPI's own reductions
 *   letters.c  letters, cancellation      messages.c     send, receive, wait
 *
 * MPI is used by one thread at a time: choir__mpi_lock is held around every call of it. */
#ifndef CHOIR_COMM_MPI_H
#define CHOIR_COMM_MPI_H

#include <mpi.h>
#include "comm/engine.h"
#include "comm/reduce.h"
#include "comm/rows.h"

enum {
    CHOIR__MPI_ENTRY = 16448, /* bytes: a stamp and the data behind it */
    CHOIR__MPI_SMALL = CHOIR__MPI_ENTRY - (int)sizeof(choir__stamp),
    CHOIR__MPI_CHUNK = 32 << 20, /* elements of a native reduction that move at a time */
};

/* Tags, on each group's own communicator. */
enum {
    CHOIR__TAG_HELLO = 1,
    CHOIR__TAG_ENTRY,
    CHOIR__TAG_LETTER,
    CHOIR__TAG_HEAD, /* head of a message that a user sends */
    CHOIR__TAG_DATA, /* data that did not fit behind the head; a schedule's messages */
    /* tags from here on are for making sub-groups, because Open MPI 4.1 sends with this tag,
       and a letter's receive would match such messages */
    CHOIR__TAG_SPLIT = 100,
};

typedef enum choir__mpi_mood {
    CHOIR__MPI_HERE,
    CHOIR__MPI_FAILED,
    CHOIR__MPI_LEFT
} choir__mpi_mood;

typedef struct choir__mpi_letter {
    int32_t mood, status;
    uint32_t seq;
    char text[500];
} choir__mpi_letter;

/* A letter to all others, and its sends. */
typedef struct choir__mpi_mail {
    choir__mpi_letter letter;
    MPI_Request *requests; /* (world) */
} choir__mpi_mail;

typedef struct choir__mpi {
    choir__engine base;
    MPI_Comm comm;
    int spins, yields;  /* number of tests before napping: without and with yielding the core */
    choir__stamp stamp; /* stamp of the current call */
    bool entered;       /* all ranks have entered the current call */

    char *sent, *entries;  /* (world) of CHOIR__MPI_ENTRY bytes: sent, received */
    MPI_Request *requests; /* (2 * world) */
    choir__node *nodes;    /* (nodes_room) sources of a reduction */
    const char **from;     /* (nodes_room) the sources' addresses */
    int nodes_room;
    char *scratch; /* CHOIR__REDUCE_SCRATCH */
    char *work;    /* (work_bytes) data of a native reduction, or counts */
    size_t work_bytes;

    choir__mpi_letter inbox;
    MPI_Request inbox_request;
    choir__mpi_mail here, fault, goodbye;
    uint32_t *heard;         /* (world) number of the call in which each rank says it waits */
    bool *left;              /* (world) */
    bool told;               /* the failure was sent, or received */
    struct choir__mpi *next; /* next in the list of closed engines */
} choir__mpi;

/* Counts bytes that this rank has sent. */
static inline void choir__mpi_count_bytes(choir__mpi *m, size_t bytes)
{
    atomic_fetch_add_explicit(&m->base.bytes, bytes, memory_order_relaxed);
}

/* --- library.c --- */

/* Starts MPI with sufficient thread support. If this function started it, MPI ends at the
 * process's exit. */
choir_status choir__mpi_start(double timeout_s);
/* Returns a private communicator of all processes of MPI_COMM_WORLD. */
MPI_Comm choir__mpi_home(void);
/* Counts engines: +1 opened, -1 closed; failed: the engine's failure, or CHOIR_OK. */
void choir__mpi_count(int engines, choir_status failed);

/* Keeps a closed engine until no rank can write to it any more, then frees it. */
void choir__mpi_bury(choir__mpi *m);

/* --- lock.c --- */

void choir__mpi_lock(void);
void choir__mpi_unlock(void);

/* Stops this process from calling MPI again. Transfers that cannot be canceled may still write
 * into a caller's memory whenever MPI makes progress. */
void choir__mpi_abandon(void);
bool choir__mpi_abandoned(void);

/* --- letters.c --- */

#define CHOIR__MPI_LINGER_S 0.2 /* seconds that a letter, or a canceled request, may take */

void choir__mpi_nap(long us);
bool choir__mpi_all_done(MPI_Request *requests, int count); /* under the lock */
void choir__mpi_letters(choir__mpi *m);                     /* reads letters; under the lock */
void choir__mpi_post(choir__mpi *m, choir__mpi_mail *mail); /* sends the letter to all others */
void choir__mpi_announce(choir__mpi *m);                    /* sends HERE, once per call */
void choir__mpi_call_back(MPI_Request *requests, int count);
void choir__mpi_free(choir__mpi *m); /* releases all memory of the engine */

/* --- wait.c --- */

/* Calls poll, under the lock, until it returns true, a rank is lost, or time is over. peers:
 * (world) the ranks that the caller waits for; NULL: all. */
typedef bool choir__mpi_poll(choir__mpi *m, void *what);
choir_status choir__mpi_until(
    choir__mpi *m, choir__mpi_poll *poll, void *what, const bool *peers);

/* Waits for requests. Those still in progress after a failure are canceled. */
choir_status choir__mpi_wait(choir__mpi *m, MPI_Request *requests, int count);
/* Waits for a non-blocking collective, which cannot be canceled; rc: the result of starting
 * it. */
choir_status choir__mpi_finish(choir__mpi *m, int rc, MPI_Request request);

/* Starts one of MPI's non-blocking collectives and waits for it. */
#define CHOIR__MPI_RUN(m, start)                                                               \
    __extension__({                                                                            \
        MPI_Request request_ = MPI_REQUEST_NULL;                                               \
        choir__mpi_lock();                                                                     \
        int rc_ = start;                                                                       \
        choir__mpi_unlock();                                                                   \
        choir__mpi_finish(m, rc_, request_);                                                   \
    })

/* Stores the first failure and sends it to the peers. */
choir_status choir__mpi_fail(choir__mpi *m, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
choir_status choir__mpi_error(choir__mpi *m, int rc); /* fails with MPI's own error */

/* --- enter.c --- */

/* The data that go to rank r behind the stamp: bytes at data + r * stride. */
typedef struct choir__mpi_parcel {
    const char *data;
    size_t bytes, stride;
} choir__mpi_parcel;

/* Returns when all ranks are in the call and their stamps agree. parcel: NULL for none. */
choir_status choir__mpi_enter(
    choir__mpi *m, const choir__stamp *stamp, const choir__mpi_parcel *parcel);
/* Returns the largest size of a parcel. each_its_own: each rank gets different data, for which
 * the room is smaller, or 0. */
size_t choir__mpi_parcel_room(const choir__mpi *m, bool each_its_own);
/* Returns the data that rank's parcel had for this rank; also this rank's own. */
const char *choir__mpi_parcel_of(const choir__mpi *m, int rank);

/* --- native.c --- */

/* Makes m->work hold at least this many bytes. */
choir_status choir__mpi_room(choir__mpi *m, size_t bytes);

/* --- collectives.c, native.c, messages.c: the engine's operations --- */

choir_status choir__mpi_run(choir__engine *engine, const choir__call *call);
choir_status choir__mpi_native(choir__mpi *m, const choir__call *call);

choir_status choir__mpi_batch(choir__engine *engine, const choir__call *calls, int count);
choir_status choir__mpi_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__mpi_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__mpi_wait_all(choir__engine *engine, choir__request *requests, int count);

#endif
