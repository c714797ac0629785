/* Engines: what carries a group's collectives. An engine is a struct with a choir__engine first
 * and one line in the registry (engines.c); all but shm are plug-ins, loaded when asked for.
 *
 * An engine runs whole calls (run), or only moves messages between two ranks (send, receive,
 * wait) and leaves it to comm/message to run a schedule of comm/pattern over them:
 * run = choir__message_run. Everything here is called by whoever runs the group's queue, one at
 * a time; only `bytes` is read by others.
 *
 * Failures are kept in `message` and stick: a group that lost a rank stays lost. The first
 * detector words the sentence, once, with the numbers by which the group knows its ranks
 * (choir__engine_number), and every rank ends up with that sentence. */
#ifndef CHOIR_COMM_ENGINE_H
#define CHOIR_COMM_ENGINE_H

#include <stdatomic.h>
#include "base/base.h"
#include "comm/call.h"
#include "launch/meet/meeting.h"

typedef struct choir__engine choir__engine;
typedef struct choir__shared choir__shared;

/* A message under way, in the caller's memory. */
typedef struct choir__request {
    void *handle; /* the engine's */
    size_t left;
    bool done;
    int32_t peer;
} choir__request;

typedef struct choir__engine_ops {
    const char *name;
    void (*close)(choir__engine *engine);

    /* Runs a collective to its end. The group has numbered it: stamp.seq is engine->seq. */
    choir_status (*run)(choir__engine *engine, const choir__call *call);
    /* Runs SENDs and RECEIVEs side by side; count is 1 outside a batch. */
    choir_status (*run_batch)(choir__engine *engine, const choir__call *calls, int count);
    /* The engine of a sub-group: ranks (count) of this one, mine among them at `rank`. color is
     * the same on its members and different from other sub-groups made at the same time.
     * Collective over all ranks of this engine that are in some sub-group. */
    choir_status (*split)(choir__engine *engine, const int *ranks, int count, int rank,
        int color, choir__engine **child);

    /* Point to point. Messages of a pair arrive in the order they were sent, and meet receives
     * in the order those were posted. stamp: that of the call they belong to, which the
     * receiver compares with its own. */
    choir_status (*send)(choir__engine *engine, int peer, const void *data, size_t bytes,
        const choir__stamp *stamp, choir__request *request);
    choir_status (*receive)(choir__engine *engine, int peer, void *data, size_t bytes,
        const choir__stamp *stamp, choir__request *request);
    /* Makes progress until all are done, or a peer is lost or late. */
    choir_status (*wait)(choir__engine *engine, choir__request *requests, int count);

    /* A failure that was found elsewhere: unless the group has one, this is it, in these words.
     * The peers learn of it. NULL: this rank keeps it to itself. */
    choir_status (*fail)(choir__engine *engine, choir_status status, const char *sentence);

    /* The same from any thread, while a call may be running: it ends, as do those of the peers.
     * NULL: peers see no more than that this rank leaves. */
    void (*abort)(choir__engine *engine, choir_status status, const char *sentence);

    /* Whether `run` gives the call to a stream, where its data are: far memory (device/far.h),
     * which other engines get through staging. And waits for all that was given, before the
     * host looks at such data. NULL: it takes the host's memory. */
    bool (*takes)(const choir__engine *engine, const choir__call *call);
    choir_status (*settle)(choir__engine *engine);

    /* A look at whether the peers live, for who waits elsewhere, in the call `during`; needed:
     * one that has left in order is lost, too. Not CHOIR_OK: the engine has failed. NULL: it
     * cannot tell. */
    choir_status (*look)(choir__engine *engine, const choir__stamp *during, bool needed);

    /* Memory all ranks can reach (comm/shared.h), for engines that have it; NULL: the ranks get
     * private memory instead. */
    choir_status (*share)(choir__engine *engine, size_t bytes, choir__shared **shared);
} choir__engine_ops;

struct choir__engine {
    const choir__engine_ops *ops;
    int rank, world;
    const char *name; /* the group's, as the flight recorder has it; NULL: not opened yet */
    /* Rank r is rank first + r * (gap + 1) of the group: not 0 in the parts of a hierarchy. */
    int first, gap;
    double timeout_s;
    int nodes;              /* machines that the ranks are on */
    choir__member *members; /* (world), the engine's own copy; NULL: all on this machine */
    uint32_t seq;           /* the number of the collective that runs, or ran last */
    choir_status failed;    /* sticks */
    char message[512];
    struct choir__stream *stream;     /* what the group's queue is to have; NULL: none */
    struct choir__queue *queue;       /* the group's */
    _Atomic uint64_t bytes;           /* sent to or fetched from peers */
    struct choir__executor *executor; /* comm/message: schedules, partial sums, staging */
    struct choir__staging *staging;   /* comm/far: the host's memory for far data */
};

/* Returns the number by which the group knows a rank of the engine. All sentences use it, so
 * that a part of a hierarchy words its failures for the group. */
static inline int choir__engine_number(const choir__engine *engine, int rank)
{
    return engine->first + rank * (engine->gap + 1);
}

/* Returns the rank that the group numbers so, which is a rank of the engine: for stamp.root. */
static inline int choir__engine_rank(const choir__engine *engine, int known_as)
{
    return (known_as - engine->first) / (engine->gap + 1);
}

/* Whether the engine itself gives the call to a stream. */
static inline bool choir__engine_takes(const choir__engine *engine, const choir__call *call)
{
    return engine->ops->takes && engine->ops->takes(engine, call);
}

/* engines.c: the names of all engines, for choir__list_names and choir__find_named. */
const struct choir__name_table *choir__engine_names(void);

/* engines.c: opens the engine `name` (NULL: the best for where the members are) over a meeting.
 */
choir_status choir__engine_open(
    const char *name, choir__meeting *meeting, choir__engine **engine);

/* The base's part of close: frees what is in the base struct, and the engine. */
void choir__engine_free(choir__engine *engine);

/* The members of a sub-group, with nodes and local ranks counted anew; NULL of NULL. */
choir__member *choir__members_of(
    const choir__member *members, const int *ranks, int count, int *nodes);

/* failure.c: keeps the first failure. Engines tell the peers of it where those could not see
 * it. */
choir_status choir__engine_fail(choir__engine *engine, choir_status status, const char *format,
    ...) __attribute__((format(printf, 3, 4)));

/* The same for what no engine sees by itself: tells the peers. */
choir_status choir__engine_spread(choir__engine *engine, choir_status status,
    const char *format, ...) __attribute__((format(printf, 3, 4)));

/* "rank 3 (pid 77 on node7)"; the host is left out where all ranks share one. */
const char *choir__engine_peer(const choir__engine *engine, int rank, char text[160]);

/* Words for ranks (count) that keep a call waiting past the timeout: who they are, whether they
 * are stopped, what they were last seen doing. came: they did come to the call, but not to its
 * end. pids (world): their processes, 0 where they are on other machines; NULL: the members'.
 */
enum { CHOIR__SILENT_TEXT = 480 };
const char *choir__engine_silent(const choir__engine *engine, const int *ranks, int count,
    bool came, const int *pids, const choir__stamp *call, char text[CHOIR__SILENT_TEXT]);

/* comm/message: runs a call by the schedule that the algorithm names, over send, receive, wait.
 */
choir_status choir__message_run(choir__engine *engine, const choir__call *call);
choir_status choir__message_batch(choir__engine *engine, const choir__call *calls, int count);

#endif
