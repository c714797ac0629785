/* A collective as one rank calls it: the stamp, which all ranks must agree on, and the
 * addresses of this rank's data. */
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
    CHOIR__ALL_TO_ALL, /* equal parts; uneven ones if the counts are given */
    CHOIR__SEND,       /* SEND and RECEIVE are not collective and have no seq */
    CHOIR__RECEIVE,
    CHOIR__TREE_REDUCE,  /* the tree of gradients over micro-batches */
    CHOIR__SHARE,        /* allocation of shared memory */
    CHOIR__TREE_SCATTER, /* TREE_SCATTER, GATHER_ROWS: rows cut over the ranks (comm/rows.h) */
    CHOIR__GATHER_ROWS,
    CHOIR__KIND_COUNT
} choir__kind;

/* Algorithms. CHOIR__AUTO chooses by size and topology; users choose the others by name. The
 * order equals the order of the table in call.c. */
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

/* All ranks must publish the same bytes. Stamps are compared with memcmp, so they contain no
 * padding and no uninitialized bytes. */
typedef struct choir__stamp {
    uint64_t count; /* elements, as the public function counts them */
    uint32_t seq;   /* number of collectives that this group has run */
    uint8_t kind, dtype, op, algorithm;
    union {             /* `kind` determines the valid member */
        int32_t root;   /* broadcast, reduce, gather, scatter: the root's number in the group */
        int32_t leaves; /* tree reduction, tree scatter: micro-batches of the job */
        int32_t peer;   /* send, receive: the other rank, or CHOIR__SOMEBODY */
    };
    uint32_t layout; /* tree reduction: digest of stride and scale; rows: digest of the
                        arguments that all ranks share; uneven all-to-all: 1; piece of far data:
                        CHOIR__PIECE_MARK in the upper 16 bits; tensor of distributed_nn.h:
                        CHOIR__TENSOR_MARK there (+ 1: with a gradient), digest of the shape */
} choir__stamp;

enum { CHOIR__PIECE_MARK = 0xfa12, CHOIR__TENSOR_MARK = 0x7e50 };

/* A call with the addresses of its data. The stamp determines which of the other fields are
 * used. */
typedef struct choir__call {
    choir__stamp stamp;
    const void *in; /* equal to out if in place */
    void *out;
    const int64_t *in_counts, *out_counts; /* uneven all-to-all: (world) elements per rank */
    size_t node_stride; /* tree reduction: bytes between this rank's nodes, from in */
    double scale;       /* tree reduction */
    const void *rows;   /* a choir__tree_scatter or choir__gather_rows, which the group keeps */
} choir__call;

/* Texts for messages: "all_reduce" (choir__kind_name), and "all_reduce of 3 f32 (mean)"
 * (choir__stamp_text). */
/* Finds a collective that moves data by its name. Error: argument, with the list of names. */
choir_status choir__kind_parse(const char *name, choir__kind *kind);

const char *choir__kind_name(choir__kind kind);
const char *choir__reduce_op_text(choir_reduce_op op); /* " (mean)"; for a sum "" */
enum { CHOIR__STAMP_TEXT = 160, CHOIR__SOMEBODY = INT32_MIN /* an unknown peer */ };
const char *choir__stamp_text(const choir__stamp *stamp, char text[CHOIR__STAMP_TEXT]);

/* Returns the stamp of the call that `rank` itself made, for messages to people: engines match
 * a receive by its sender's stamp. from: the rank that it receives from, or CHOIR__SOMEBODY. */
static inline choir__stamp choir__stamp_of(choir__stamp stamp, int rank, int from)
{
    if (stamp.kind == CHOIR__SEND && stamp.peer == rank) {
        stamp.kind = CHOIR__RECEIVE;
        stamp.peer = from;
    }
    return stamp;
}

/* choir__algorithm_name returns the name, such as "ring". choir__algorithm_parse finds the
 * algorithm of a name; its error lists all names. */
const char *choir__algorithm_name(choir__algorithm algorithm);
choir_status choir__algorithm_parse(const char *name, choir__algorithm *algorithm);

/* How a tree reduction adds. */
typedef enum choir__sums {
    CHOIR__SUMS_OF_TREE, /* sums in the job's tree: equal bits for any number of ranks */
    CHOIR__SUMS_BY_RANK, /* each rank adds its own first: the bits depend on the number of ranks
                          */
    CHOIR__SUMS_BY_PLACE, /* as BY_RANK, in an order that depends on an element's place */
} choir__sums;
choir__sums choir__algorithm_sums(choir__algorithm algorithm);

#endif
