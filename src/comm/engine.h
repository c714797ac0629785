/* Engines carry a group's collectives. An engine is a struct that begins with a choir__engine,
 * and it has one line in the registry (engines.c). All engines but shm are plug-ins, which are
 * loaded on demand.
 *
 * An engine either runs whole calls (run), or only moves messages between two ranks (send,
 * receive, wait) and lets comm/message run a schedule of comm/pattern over them: run =
 * choir__message_run. The thread that runs the group's queue makes all calls to an engine, one
 * at a time; other threads read only `bytes`.
 *
 * The first failure is stored in `message` and is permanent: a group that has lost a rank
 * cannot recover. The first detector words the sentence, once, with the ranks' numbers in the
 * group (choir__engine_number), and all ranks report that sentence. */
#ifndef CHOIR_COMM_ENGINE_H
#define CHOIR_COMM_ENGINE_H

#include <stdatomic.h>
#include "base/base.h"
#include "comm/call.h"
#include "launch/meet/meeting.h"

/* Returns whether a status says that a peer is lost or silent, so that its group has failed. */
static inline bool choir__is_loss(choir_status status)
{
    return status == CHOIR_ERR_PEER_LOST || status == CHOIR_ERR_TIMEOUT;
}

typedef struct choir__engine choir__engine;
typedef struct choir__shared choir__shared;

/* A message in flight, in the caller's memory. */
typedef struct choir__request {
    void *handle; /* belongs to the engine */
    size_t left;
    bool done;
    int32_t peer;
} choir__request;

/* Writes the role of a rank in the job, such as "stage 1 of the pipeline", or "". write NULL:
 * ranks have no roles. */
typedef struct choir__role {
    void (*write)(void *arg, int rank, char *text, size_t room);
    void *arg;
} choir__role;

typedef struct choir__engine_ops {
    const char *name;
    void (*close)(choir__engine *engine);

    /* Runs a collective to completion. The group has numbered it: stamp.seq is engine->seq. */
    choir_status (*run)(choir__engine *engine, const choir__call *call);
    /* Runs SENDs and RECEIVEs concurrently; count is 1 outside a batch. */
    choir_status (*run_batch)(choir__engine *engine, const choir__call *calls, int count);
    /* Creates the engine of a sub-group: ranks (count) of this engine; the calling rank becomes
     * number `rank` there. All members pass the same color, and sub-groups made at the same
     * time have different colors. Collective over all ranks of this engine that are in some
     * sub-group. */
    choir_status (*split)(choir__engine *engine, const int *ranks, int count, int rank,
        int color, choir__engine **child);

    /* Point-to-point messages. Messages of a pair arrive in the order in which they were sent,
     * and match receives in the order in which these were posted. stamp: stamp of the message's
     * call; the receiver compares it with its own. */
    choir_status (*send)(choir__engine *engine, int peer, const void *data, size_t bytes,
        const choir__stamp *stamp, choir__request *request);
    choir_status (*receive)(choir__engine *engine, int peer, void *data, size_t bytes,
        const choir__stamp *stamp, choir__request *request);
    /* Makes progress until all requests are done, or a peer is lost or late. */
    choir_status (*wait)(choir__engine *engine, choir__request *requests, int count);

    /* Makes a failure that was detected outside the engine the group's failure, unless the
     * group has one already, and notifies the peers. NULL: only this rank learns of the
     * failure. */
    choir_status (*fail)(choir__engine *engine, choir_status status, const char *sentence);

    /* Fails the group from any thread, even while a call is running: the calls of this rank and
     * of its peers end. NULL: peers only notice that this rank leaves. */
    void (*abort)(choir__engine *engine, choir_status status, const char *sentence);

    /* `takes` returns true if `run` queues the call on a stream, because its data are in far
     * memory (device/far.h); other engines receive such data through staging. `settle` waits
     * for all work on that stream, before the host reads such data. NULL: the engine accepts
     * host memory only. */
    bool (*takes)(const choir__engine *engine, const choir__call *call);
    choir_status (*settle)(choir__engine *engine);

    /* Checks that the peers are alive, on behalf of a rank that waits outside the engine, in
     * the call `during`. needed: a peer that has left in order counts as lost, too. If the
     * result is not CHOIR_OK, the engine has failed. NULL: the engine cannot tell. */
    choir_status (*look)(choir__engine *engine, const choir__stamp *during, bool needed);

    /* Allocates memory that all ranks can reach (comm/shared.h). NULL: the ranks get private
     * memory instead. */
    choir_status (*share)(choir__engine *engine, size_t bytes, choir__shared **shared);
} choir__engine_ops;

struct choir__engine {
    const choir__engine_ops *ops;
    int rank, world;
    const char *name; /* the group's name, as in the flight recorder; NULL: not opened yet */
    choir__role role; /* role of the group's ranks, for sentences that name a rank */
    /* Rank r is rank first + r * (gap + 1) of the group: not 0 in the parts of a hierarchy. */
    int first, gap;
    double timeout_s;
    int nodes;              /* number of machines */
    choir__member *members; /* (world), the engine's own copy; NULL: all on this machine */
    uint32_t seq;           /* number of the current or last collective */
    choir_status failed;    /* permanent */
    char message[512];
    struct choir__gpu_stream *stream; /* the stream for the group's queue; NULL: none */
    struct choir__queue *queue;       /* the group's queue */
    _Atomic uint64_t bytes;           /* bytes sent to or fetched from peers */
    struct choir__executor *executor; /* comm/message: schedules, partial sums, staging */
    struct choir__staging *staging;   /* comm/far: host memory for far data */
};

/* Returns the number of an engine's rank in the group. All sentences use it, so
 * that part of a hierarchy words its failures for the group. */
static inline int choir__engine_number(const choir__engine *engine, int rank)
{
    return engine->first + rank * (engine->gap + 1);
}

/* Returns the engine's rank whose number in the group is known_as; used for stamp.root. */
static inline int choir__engine_rank(const choir__engine *engine, int known_as)
{
    return (known_as - engine->first) / (engine->gap + 1);
}

/* Returns true if the engine itself queues the call on a stream. */
static inline bool choir__engine_takes(const choir__engine *engine, const choir__call *call)
{
    return engine->ops->takes && engine->ops->takes(engine, call);
}

/* engines.c: the names of all engines, for choir__list_names and choir__find_named. */
const struct choir__name_table *choir__engine_names(void);

/* Returns the demands of the engine `name` on a meeting; NULL: the demands of the best engine,
 * which are the least. */
choir__meet_need choir__engine_need(const char *name);

/* engines.c: opens the engine `name` over a meeting. NULL: the best engine for the members'
 * locations. */
choir_status choir__engine_open(
    const char *name, choir__meeting *meeting, choir__engine **engine);

/* Frees the members of the base struct, and the engine itself; every engine's close ends with
 * it. */
void choir__engine_free(choir__engine *engine);

/* Returns the members of a sub-group, with nodes and local ranks renumbered; NULL if members is
 * NULL. */
choir__member *choir__members_of(
    const choir__member *members, const int *ranks, int count, int *nodes);

/* failure.c: stores the first failure. An engine notifies peers that cannot detect it
 * themselves. */
choir_status choir__engine_fail(choir__engine *engine, choir_status status, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* failure.c: stores a failure that engines cannot detect themselves, and notifies the peers. */
choir_status choir__engine_spread(choir__engine *engine, choir_status status,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns "rank 3 (pid 77 on node7, stage 1 of the pipeline)". The host is omitted if all ranks
 * share one, and the role if the group's ranks have none. */
enum { CHOIR__PEER_TEXT = 240 };
const char *choir__engine_peer(
    const choir__engine *engine, int rank, char text[CHOIR__PEER_TEXT]);

/* Returns the sentence about a rank whose process has ended without leaving the group: it died,
 * or it exited with status 0 while the others need it. pidfd -1: how it ended is unknown. */
enum { CHOIR__ENDED_TEXT = 480 };
const char *choir__engine_ended(const choir__engine *engine, int rank, int pidfd,
    const choir__stamp *during, char text[CHOIR__ENDED_TEXT]);

/* Describes ranks (count) that keep a call waiting past the timeout: their names, whether they
 * are stopped, and their last known activity. came: they entered the call, but did not finish
 * it. */
enum { CHOIR__SILENT_TEXT = 480 };
const char *choir__engine_silent(const choir__engine *engine, const int *ranks, int count,
    bool came, const choir__stamp *call, char text[CHOIR__SILENT_TEXT]);

/* comm/message: run a call, by the schedule of its algorithm, or a batch, over the engine's
 * send, receive and wait. */
choir_status choir__message_run(choir__engine *engine, const choir__call *call);
choir_status choir__message_batch(choir__engine *engine, const choir__call *calls, int count);

#endif
