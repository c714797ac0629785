/* Running schedules over messages: declarations shared by the files of this folder.
 *
 *   run.c    a call becomes lanes, lanes run rounds    schedules.c  made once and kept
 *   local.c  a rank's work on its own memory           batch.c      sends and receives together
 *   rows.c   calls on rows, packed, in pieces
 *
 * A large reduction or broadcast is cut into segments, and each segment is a collective of its
 * own, run by a lane. A few lanes are active at a time, each some rounds behind the previous
 * one: while one lane adds data that have arrived, the messages of the others travel. At time t
 * the lane of segment s enters round t - s * stride. This depends only on numbers that all
 * ranks share, so the messages of a pair of ranks are sent and expected in the same order. */
#ifndef CHOIR_MESSAGE_H
#define CHOIR_MESSAGE_H

#include "comm/engine.h"
#include "comm/pattern/schedule.h"
#include "comm/reduce.h"

enum {
    CHOIR__MESSAGE_SCHEDULES = 12,       /* schedules kept per group */
    CHOIR__LANES = 4,                    /* segments in flight at a time */
    CHOIR__SEGMENT_MESSAGE = 256 * 1024, /* bytes per message of a segment */
};

/* A schedule and the collective for which it was made. */
typedef struct choir__message_kept {
    choir__pattern_collective collective;
    choir__move_schedule schedule;
    int most;   /* maximum number of messages in a round */
    int rounds; /* maximum over the ranks; 0: not counted yet */
    uint64_t used;
} choir__message_kept;

/* The state of comm/message in an engine. */
typedef struct choir__executor {
    choir__message_kept kept[CHOIR__MESSAGE_SCHEDULES];
    int kept_count, *nodes; /* nodes: (world) the machine of each rank */
    uint64_t uses;
    char *memory; /* aligned to 64 */
    size_t memory_bytes;
    char *staging; /* for calls on rows; also aligned to 64 */
    size_t staging_bytes;
    choir__request *requests;
    int request_room;
    choir__node *source_nodes; /* (source_room) nodes of one reduction */
    const char **sources;
    int source_room;
} choir__executor;

/* A segment in flight. */
typedef struct choir__lane {
    const choir__message_kept *kept;
    int64_t segment, first, count; /* elements of the segment */
    bool busy;
    int round, next;          /* the next round, and its first move */
    int local, local_end;     /* local moves of the current round */
    int pending;              /* messages of the current round */
    choir__request *requests; /* (kept->most) */
    const char *in;           /* the segment's part of the caller's memory, or a copy */
    char *out, *scratch;
    char *wide_in, *wide_out; /* memory for copies */
    int64_t block;            /* elements between the blocks of `in`; 0: contiguous */
} choir__lane;

/* The state that all lanes of a call share. */
typedef struct choir__move_schedule_run {
    choir__engine *engine;
    choir__executor *executor;
    const choir__call *call;
    const choir__arith *arith; /* NULL: nothing is added */
    /* The data's own arithmetic if partial results travel in a wider type. */
    const choir__arith *wide;
    size_t size; /* bytes of an element in a message */
    bool in_place;
    double scale;
    int64_t divisor;
    char *partial; /* CHOIR__REDUCE_SCRATCH bytes */
} choir__move_schedule_run;

/* --- schedules.c --- */

/* Returns the engine's executor; the first call creates it. */
choir__executor *choir__executor_of(choir__engine *engine);

/* Returns the collective's schedule, kept or new; it stays valid until CHOIR__MESSAGE_SCHEDULES
 * others have been requested. everywhere: also counts choir__message_kept.rounds, over all
 * ranks. */
choir_status choir__message_schedule(choir__engine *engine,
    const choir__pattern_collective *collective, bool everywhere,
    const choir__message_kept **kept);

/* Returns at least `bytes` bytes, without the previous contents; if the allocation fails,
 * returns NULL and the engine has failed. */
char *choir__executor_memory(choir__engine *engine, size_t bytes);
/* Like choir__executor_memory, but separate memory for calls that run in pieces. Creates the
 * executor if necessary. */
char *choir__executor_staging(choir__engine *engine, size_t bytes);
choir__request *choir__executor_requests(choir__executor *executor, int count);

/* NULL is fine. */
void choir__executor_free(choir__executor *executor);

/* --- local.c --- */

/* Returns the address of a span in the memory of a lane. */
char *choir__lane_at(
    const choir__move_schedule_run *run, const choir__lane *lane, choir__chunk_span span);

/* Runs the moves of the lane's round that are not messages, in order. */
void choir__lane_local(const choir__move_schedule_run *run, choir__lane *lane);

/* Partial results travel in the type in which they are added (bf16 as f32). Such a lane runs on
 * copies of its part of the caller's data, which are widened before its first round and rounded
 * after its last. */
void choir__lane_widen(const choir__move_schedule_run *run, choir__lane *lane);
void choir__lane_narrow(const choir__move_schedule_run *run, choir__lane *lane);

#endif
