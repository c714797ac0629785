/* The engine over MPI: what the files of this folder share.
 *
 * A call runs in two parts. First all ranks *enter* it: each sends every other its stamp, and a
 * small call's data with it, so that a call of a few KiB is over after one exchange of
 * messages. When the stamps agree, larger data move by MPI's own non-blocking collectives:
 * slices all-to-all, each rank reduces its own in the fixed tree, all-gather.
 *
 * Nothing here blocks in MPI while a peer may be late: whoever waits tests, and between tests
 * spins, then yields, then naps. Who has waited long reads its mail. Four *letters* travel
 * beside the data: HERE ("I wait in call n", the answer to somebody else's), FAILED (the
 * sentence of the rank that failed first), LEFT (the group was freed), and HELLO, by which
 * ranks meet. At a timeout, the ranks from which no HERE came are the late ones.
 *
 *   library.c  MPI's own start and end    enter.c        stamps, small data
 *   open.c     groups and sub-groups      collectives.c  those that move
 *   wait.c     tests, timeouts            reductions.c   in the fixed tree
 *   letters.c  letters, called back       native.c       by MPI's own reductions
 *   messages.c send, receive, wait        counts.c       what these have in common
 *
 * MPI is used by one thread at a time: choir__mpi_lock is held around every call of it. */
#ifndef CHOIR_COMM_MPI_H
#define CHOIR_COMM_MPI_H

#include <mpi.h>
#include "comm/engine.h"
#include "comm/reduce.h"
#include "comm/rows.h"

enum {
    CHOIR__MPI_ENTRY = 16448, /* bytes: a stamp and what fits behind it */
    CHOIR__MPI_SMALL = CHOIR__MPI_ENTRY - (int)sizeof(choir__stamp),
    CHOIR__MPI_CHUNK = 32 << 20, /* bytes of a large reduction that are under way at a time */
};

/* Tags, on every group's own communicator. */
enum {
    CHOIR__TAG_HELLO = 1,
    CHOIR__TAG_ENTRY,
    CHOIR__TAG_LETTER,
    CHOIR__TAG_HEAD,        /* of a message that a user sends */
    CHOIR__TAG_DATA,        /* what didn't fit behind its head; a schedule's messages */
    CHOIR__TAG_SPLIT = 100, /* and on: of a sub-group's making; Open MPI 4.1 sends with it,
                               and a letter's receive would take what it sends */
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

/* A letter of mine on its way to all others. */
typedef struct choir__mpi_mail {
    choir__mpi_letter letter;
    MPI_Request *requests; /* (world) */
} choir__mpi_mail;

typedef struct choir__mpi {
    choir__engine base;
    MPI_Comm comm;
    int spins, yields;  /* tests before napping: with the core held, and given away */
    choir__stamp stamp; /* of the call that runs */
    bool entered;       /* all ranks have come to it */

    char *sent, *entries;  /* (world) of CHOIR__MPI_ENTRY bytes: what I say, what they said */
    MPI_Request *requests; /* (2 * world) */
    int *counts;           /* (4 * world) of MPI's uneven collectives */
    choir__node *nodes;    /* (nodes_room) sources of a reduction */
    const char **from;     /* (nodes_room) and where they lie */
    int nodes_room;
    char *scratch; /* CHOIR__REDUCE_SCRATCH */
    char *work;    /* (work_bytes) peers' data */
    size_t work_bytes;

    choir__mpi_letter inbox;
    MPI_Request inbox_request;
    choir__mpi_mail here, fault, goodbye;
    uint32_t *heard;         /* (world) the call that a rank says it waits in */
    bool *left;              /* (world) */
    bool told;               /* of the failure: by me, or to me */
    struct choir__mpi *next; /* among the closed */
} choir__mpi;

/* --- library.c --- */

/* MPI runs, with threads enough; ends at the process's exit if we started it. */
choir_status choir__mpi_start(double timeout_s);
/* All processes of MPI_COMM_WORLD, in a communicator of our own. */
MPI_Comm choir__mpi_home(void);
/* +1: one is opened; -1: closed, and why it failed if it did. */
void choir__mpi_count(int engines, choir_status failed);

/* Keeps a closed engine until nobody can write to it any more, then frees it. */
void choir__mpi_bury(choir__mpi *m);

/* --- lock.c --- */

void choir__mpi_lock(void);
void choir__mpi_unlock(void);

/* Transfers that cannot be called back may still write into a caller's memory when MPI makes
 * progress: so from here on this process does not call MPI any more. */
void choir__mpi_abandon(void);
bool choir__mpi_abandoned(void);

/* --- letters.c --- */

#define CHOIR__MPI_LINGER_S 0.2 /* how long a letter, or a request called back, may take */

void choir__mpi_nap(long us);
bool choir__mpi_all_done(MPI_Request *requests, int count); /* the lock is held */
void choir__mpi_letters(choir__mpi *m);                     /* reads the mail; under the lock */
void choir__mpi_post(choir__mpi *m, choir__mpi_mail *mail); /* sends it to all others */
void choir__mpi_announce(choir__mpi *m);                    /* sends HERE, once per call */
void choir__mpi_call_back(MPI_Request *requests, int count);
void choir__mpi_free(choir__mpi *m); /* its memory */

/* --- wait.c --- */

/* Polls, under the lock, until poll says that it is over; or somebody is lost or late.
 * peers: (world) whom the caller waits for, NULL: all are needed. */
typedef bool choir__mpi_poll(choir__mpi *m, void *what);
choir_status choir__mpi_until(
    choir__mpi *m, choir__mpi_poll *poll, void *what, const bool *peers);

/* The same for requests. Those that are still under way after a failure are called back. */
choir_status choir__mpi_wait(choir__mpi *m, MPI_Request *requests, int count);
/* For one of a non-blocking collective, which cannot be called back; rc: of its start. */
choir_status choir__mpi_finish(choir__mpi *m, int rc, MPI_Request request);

/* Starts one of MPI's non-blocking collectives and ends it. */
#define CHOIR__MPI_RUN(m, start)                                                               \
    __extension__({                                                                            \
        MPI_Request request_ = MPI_REQUEST_NULL;                                               \
        choir__mpi_lock();                                                                     \
        int rc_ = start;                                                                       \
        choir__mpi_unlock();                                                                   \
        choir__mpi_finish(m, rc_, request_);                                                   \
    })

/* Keeps the first failure and tells the peers. */
choir_status choir__mpi_fail(choir__mpi *m, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
choir_status choir__mpi_error(choir__mpi *m, int rc); /* MPI's own error */

/* --- enter.c --- */

/* What of mine goes to rank r behind the stamp: bytes at data + r * stride. */
typedef struct choir__mpi_parcel {
    const char *data;
    size_t bytes, stride;
} choir__mpi_parcel;

/* All ranks are in the call, and their stamps agree. parcel: NULL for none. */
choir_status choir__mpi_enter(
    choir__mpi *m, const choir__stamp *stamp, const choir__mpi_parcel *parcel);
/* How many bytes a parcel may have; fewer, or none, where each rank gets another one. */
size_t choir__mpi_parcel_room(const choir__mpi *m, bool each_its_own);
/* What rank's parcel had for me, and mine. */
const char *choir__mpi_parcel_of(const choir__mpi *m, int rank);

/* --- counts.c --- */

choir_status choir__mpi_check_total(choir__mpi *m, uint64_t count); /* fits MPI's int */
MPI_Datatype choir__mpi_carrier(size_t size); /* any type of so many bytes: only moved */
/* m->work of at least so many bytes. */
choir_status choir__mpi_room(choir__mpi *m, size_t bytes);
void choir__mpi_count_bytes(choir__mpi *m, size_t bytes);

/* --- collectives.c, native.c, messages.c: the engine's operations --- */

choir_status choir__mpi_run(choir__engine *engine, const choir__call *call);
choir_status choir__mpi_native(choir__mpi *m, const choir__call *call);
choir_status choir__mpi_reduce(choir__mpi *m, const choir__call *call);
choir_status choir__mpi_reduce_scatter(choir__mpi *m, const choir__call *call);

choir_status choir__mpi_batch(choir__engine *engine, const choir__call *calls, int count);
choir_status choir__mpi_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__mpi_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request);
choir_status choir__mpi_wait_all(choir__engine *engine, choir__request *requests, int count);

#endif
