/* A collective as one rank calls it: what all ranks must agree on (the stamp), and where this
 * rank's data lie. */
#ifndef CHOIR_COMM_CALL_H
#define CHOIR_COMM_CALL_H

#include <choir/group.h>

typedef enum choir__kind {
    CHOIR__BARRIER,
    CHOIR__BROADCAST,
    CHOIR__REDUCE,
    CHOIR__ALL_REDUCE,
    CHOIR__GATHER,
    CHOIR__ALL_GATHER,
    CHOIR__SCATTER,
    CHOIR__REDUCE_SCATTER,
    CHOIR__ALL_TO_ALL, /* equal parts, or uneven ones where the counts are given */
    CHOIR__SEND,       /* these two: not collective, no seq */
    CHOIR__RECEIVE,
    CHOIR__TREE_REDUCE,  /* the gradients' tree over micro-batches */
    CHOIR__SHARE,        /* the making of shared memory */
    CHOIR__TREE_SCATTER, /* these two: of rows that are cut over the ranks (comm/rows.h) */
    CHOIR__GATHER_ROWS,
    CHOIR__KIND_COUNT
} choir__kind;

/* By name, or CHOIR__AUTO: by size and topology. The order is that of choir__algorithms. */
typedef enum choir__algorithm {
    CHOIR__AUTO,
    CHOIR__EXCHANGE,
    CHOIR__DIRECT,
    CHOIR__BINOMIAL,
    CHOIR__HALVING,
    CHOIR__HIERARCHICAL,
    CHOIR__RING,
    CHOIR__DOUBLE_TREE,
    CHOIR__NATIVE,
    CHOIR__ALGORITHM_COUNT
} choir__algorithm;

/* All ranks must publish the same bytes: compared with memcmp, so no padding and no garbage. */
typedef struct choir__stamp {
    uint64_t count; /* elements, as the public function counts them */
    uint32_t seq;   /* how many collectives this group has run */
    uint8_t kind, dtype, op, algorithm;
    union {             /* which of these it has, `kind` says */
        int32_t root;   /* broadcast, reduce, gather, scatter: as the group numbers its ranks */
        int32_t leaves; /* tree reduction, tree scatter: micro-batches of the job */
        int32_t peer;   /* send, receive: the other rank, or CHOIR__SOMEBODY */
    };
    uint32_t layout; /* tree reduction: digest of stride and scale; rows: of what all ranks
                        give alike; uneven: 1; a piece of far data: CHOIR__PIECE_MARK above */
} choir__stamp;

enum { CHOIR__PIECE_MARK = 0xfa12 };

/* kind and stamp say which of the fields are used. */
typedef struct choir__call {
    choir__stamp stamp;
    const void *in; /* in place: the same as out */
    void *out;
    const int64_t *in_counts, *out_counts; /* (world) of an uneven all-to-all */
    size_t node_stride; /* tree reduction: bytes between this rank's nodes, from in */
    float scale;        /* tree reduction */
    const void *rows;   /* choir__tree_scatter, choir__gather_rows; the group keeps it */
} choir__call;

/* "all_reduce", and "all_reduce of 3 f32 (mean)". */
const char *choir__kind_name(choir__kind kind);
const char *choir__reduce_op_text(choir_reduce_op op); /* " (mean)"; of a sum "" */
enum { CHOIR__STAMP_TEXT = 160, CHOIR__SOMEBODY = INT32_MIN /* a peer that is not known */ };
const char *choir__stamp_text(const choir__stamp *stamp, char text[CHOIR__STAMP_TEXT]);

/* What `rank` called, for messages to people: engines match a receive by its sender's stamp.
 * from: whom it receives from, or CHOIR__SOMEBODY. */
static inline choir__stamp choir__stamp_of(choir__stamp stamp, int rank, int from)
{
    if (stamp.kind == CHOIR__SEND && stamp.peer == rank) {
        stamp.kind = CHOIR__RECEIVE;
        stamp.peer = from;
    }
    return stamp;
}

/* Returns the algorithm's name, as "ring"; and the algorithm of a name, with an error that
 * lists them all. choir__algorithm_names is for choir__list_names. */
const char *choir__algorithm_name(choir__algorithm algorithm);
choir_status choir__algorithm_parse(const char *name, choir__algorithm *algorithm);
const struct choir__name_table *choir__algorithm_names(void);

#endif
