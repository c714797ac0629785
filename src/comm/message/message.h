/* Running schedules over messages: what the files of this folder share.
 *
 *   run.c    a call becomes lanes, lanes run rounds     plans.c  schedules, made once and kept
 *   local.c  what a rank does to its own memory         batch.c  sends and receives together
 *   rows.c   calls on rows, packed, in pieces
 *
 * A large reduction or broadcast is cut into segments, and each segment is a collective of its
 * own, run by a lane. A few lanes are under way at a time, each some rounds behind the one
 * before it: while one adds what has come, the messages of the others travel. At time t the
 * lane of segment s enters round t - s * stride. That depends on numbers alone which all ranks
 * share, so the messages of a pair of ranks are sent and expected in the same order. */
#ifndef CHOIR_MESSAGE_H
#define CHOIR_MESSAGE_H

#include "comm/engine.h"
#include "comm/pattern/schedule.h"
#include "comm/reduce.h"

enum {
    CHOIR__PLANS = 12,                   /* schedules kept a group */
    CHOIR__LANES = 4,                    /* segments under way at a time */
    CHOIR__SEGMENT_MESSAGE = 256 * 1024, /* bytes that one message of a segment carries */
};

/* A schedule and what it was made for. */
typedef struct choir__kept {
    choir__plan plan;
    choir__schedule schedule;
    int most;   /* messages of a round, at most */
    int rounds; /* of the rank that has most of them */
    uint64_t used;
} choir__kept;

/* What comm/message keeps with an engine. */
typedef struct choir__executor {
    choir__kept kept[CHOIR__PLANS];
    int kept_count, *nodes; /* nodes: (world) the machine of each rank */
    uint64_t uses;
    char *memory; /* aligned to 64 */
    size_t memory_bytes;
    char *staging; /* the same, of calls on rows */
    size_t staging_bytes;
    choir__request *requests;
    int request_room;
    choir__node *source_nodes; /* (source_room) those of one reduction */
    const char **sources;
    int source_room;
} choir__executor;

/* One segment under way. */
typedef struct choir__lane {
    const choir__kept *kept;
    int64_t segment, first, count; /* which elements */
    bool busy;
    int round, next;          /* the round to come, and its first move */
    int local, local_end;     /* moves of the round that runs */
    int pending;              /* its messages */
    choir__request *requests; /* (kept->most) */
    const char *in;           /* the segment's part of the caller's memory, or copies */
    char *out, *scratch;
    char *wide_in, *wide_out; /* room for copies */
    int64_t block; /* elements between the blocks of `in`; 0: they follow one another */
} choir__lane;

/* What all lanes of a call have in common. */
typedef struct choir__schedule_run {
    choir__engine *engine;
    choir__executor *executor;
    const choir__call *call;
    const choir__arith *arith; /* NULL: nothing is added */
    const choir__arith *wide;  /* the data's own, where partial results travel as wider ones */
    size_t size;               /* of an element on its way, in bytes */
    bool in_place;
    double scale;
    int64_t divisor;
    char *partial; /* CHOIR__REDUCE_SCRATCH bytes */
} choir__schedule_run;

/* --- plans.c --- */

/* The engine's executor; made by the first call that needs one. */
choir__executor *choir__executor_of(choir__engine *engine);

/* The schedule for plan, kept or made; valid until the next twelve have been asked for. With
 * `everywhere`, its `rounds` count, too. */
choir_status choir__plan_schedule(
    choir__engine *engine, const choir__plan *plan, bool everywhere, const choir__kept **kept);

/* At least so many bytes, with what was there before lost; NULL, and the engine's failure, if
 * they can't be had. */
char *choir__executor_memory(choir__engine *engine, size_t bytes);
/* The same, beside it: a call in pieces has its own. Makes the executor, too. */
char *choir__executor_staging(choir__engine *engine, size_t bytes);
choir__request *choir__executor_requests(choir__executor *executor, int count);

/* NULL is fine. */
void choir__executor_free(choir__executor *executor);

/* --- local.c --- */

/* Where a span lies in the memory of a lane. */
char *choir__lane_at(const choir__schedule_run *run, const choir__lane *lane, choir__span span);

/* The moves of the lane's round that are no messages, in order. */
void choir__lane_local(const choir__schedule_run *run, choir__lane *lane);

/* Partial results travel as what they are added in (bf16 as f32): such a lane runs on copies of
 * its part of the caller's data, widened before its first round, and rounded after its last. */
void choir__lane_widen(const choir__schedule_run *run, choir__lane *lane);
void choir__lane_narrow(const choir__schedule_run *run, choir__lane *lane);

#endif
