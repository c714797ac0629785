/* Collectives on rows that are cut over the ranks, as sharded parameters are: a reduce-scatter
 * of the gradients' tree, and an all-gather.
 *
 *      a block of 5 rows, 3 ranks            a buffer holds several blocks
 *      row 0 1 | 2 3 | 4                     |   cut 0   | cut 1 |     cut 2     |
 *          rank 0 rank 1 rank 2                0 0 1 1 2   0 1 2   0 0 0 1 1 1 2
 *
 * comm/rows.c checks and issues them. shm/rows.c reads peers' rows where they lie; other
 * engines, and private memory, get them in messages (message/rows.c). */
#ifndef CHOIR_COMM_ROWS_H
#define CHOIR_COMM_ROWS_H

#include <choir/group.h>
#include "comm/engine.h"
#include "comm/pattern/tree.h"

/* Of `rows` rows of `row` elements rank r has [r * c, (r + 1) * c), c = ceil(rows / world), as
 * far as there are so many (torch.chunk's rule). */
typedef struct choir__cut {
    int64_t at, rows, row; /* at: where the block begins in a whole buffer; all in elements */
    int64_t out;           /* where a rank's rows of it begin among the rank's own */
} choir__cut;

/* Rank's rows of the cut: elements [*lo, *lo + the result) of the block. */
int64_t choir__cut_part(const choir__cut *cut, int rank, int world, int64_t *lo);

/* The sum over micro-batches, in the fixed tree over [0, total), of each rank's own rows. The
 * group's ranks have the micro-batches [first, first + leaves): rank s those that
 * choir__tree_run(leaves, s, world) counts from `first` on, summed into the nodes that
 * choir__tree_nodes names for them. If that is all of the job, the result is the sum times
 * scale, with the bits of choir__group_tree_reduce. Else there are several: the nodes that
 * choir__tree_nodes names for [first, first + leaves), for another group to go on with. */
typedef struct choir__tree_scatter {
    const void *nodes; /* (count) f32, node k at k * node_stride bytes; only read */
    size_t node_stride;
    const choir__cut *cuts; /* (cut_count) kept by the caller until the call has run, or for as
                               long as a recorded step may run it again */
    int cut_count;
    int64_t count, first, leaves, total;
    float *out; /* cut i's rows at out + cuts[i].out, result k at k * out_stride bytes */
    size_t out_stride;
    float scale; /* 1 where the group has not all of the job's micro-batches */
} choir__tree_scatter;

/* On the group's queue. When it is done, peers have read this rank's nodes. All ranks give the
 * same but for nodes, out, out_stride and the cuts' `out`. Errors: argument (a batch is open,
 * cuts outside [0, count)). */
choir_status choir__group_tree_scatter(choir_group *group, const choir__tree_scatter *args);

/* Each rank's rows to all ranks. */
typedef struct choir__gather_rows {
    const void *mine; /* cut i's rows at mine + cuts[i].out; NULL: they are in place in all */
    void *all;        /* cut i at all + cuts[i].at */
    const choir__cut *cuts; /* alike on all ranks; kept as above */
    int cut_count;
    choir_dtype dtype;
} choir__gather_rows;

/* On the group's queue. When it is done, peers have read this rank's rows. */
choir_status choir__group_gather_rows(choir_group *group, const choir__gather_rows *args);

/* --- for engines --- */

/* Elements of rank's rows of all cuts. */
int64_t choir__cuts_part(const choir__cut *cuts, int cut_count, int rank, int world);

/* The nodes that rank of the group has in its memory; and those of the result. */
int choir__scatter_nodes(
    const choir__tree_scatter *args, int rank, int world, choir__node nodes[CHOIR__MAX_NODES]);
int choir__scatter_results(
    const choir__tree_scatter *args, choir__node nodes[CHOIR__MAX_NODES]);

/* Adds up n elements: sources (in the tree's order) begin at from[i], result k goes to
 * out + k * out_stride. scratch: CHOIR__REDUCE_SCRATCH. */
void choir__scatter_add(const choir__tree_scatter *args, const choir__node *nodes,
    const char *const *from, int sources, char *out, int64_t n, char *scratch);

/* What these calls travel as: an all-to-all of uneven parts, and an all-gather. Others: as what
 * they are. */
choir__kind choir__carried_as(choir__kind kind);

/* Runs one of these calls in pieces that `carry` moves, as what choir__carried_as says. */
typedef choir_status choir__rows_mover(choir__engine *engine, const choir__call *call);
choir_status choir__rows_run(
    choir__engine *engine, const choir__call *call, choir__rows_mover *carry);

#endif
