/* Collectives on rows that are cut over the ranks, as sharded parameters are: a reduce-scatter
 * of the gradients' tree, and an all-gather.
 *
 *      a block of 5 rows, 3 ranks            a buffer holds several blocks
 *      row 0 1 | 2 3 | 4                     |   cut 0   | cut 1 |     cut 2     |
 *          rank 0 rank 1 rank 2                0 0 1 1 2   0 1 2   0 0 0 1 1 1 2
 *
 * A block may be a run of the rows of a larger one, whose rows are cut: a part of a gradient.
 *
 * comm/rows.c checks and issues them. shm/rows.c reads the peers' rows in place; other engines,
 * and private memory, receive them in messages (message/rows.c). */
#ifndef CHOIR_COMM_ROWS_H
#define CHOIR_COMM_ROWS_H

#include <choir/group.h>
#include "comm/engine.h"
#include "base/tree.h"

/* A block of `rows` rows of `row` elements that is cut over the ranks: rank r has the rows [r *
 * c, (r + 1) * c), c = ceil(rows / world), as far as they exist (torch.chunk's rule). */
typedef struct choir__rows_cut {
    int64_t at, rows, row; /* at: where the block begins in a whole buffer; all in elements */
    int64_t out;           /* beginning of its rows in a buffer of this rank's own rows */
    /* If of != 0, this block is rows [first, first + rows) of a larger block of `of` rows; each
     * rank keeps the rows that it owns in the larger block */
    int64_t first, of;
    /* Rank r has the rows that are said to be rank r - turn's, modulo world: ranks may add each
     * other's micro-batches to rows that stay where they are. In [0, world). */
    int turn;
} choir__rows_cut;

/* Returns the size of the rank's part of the cut: elements [*lo, *lo + result) of the block. */
int64_t choir__cut_part(const choir__rows_cut *cut, int rank, int world, int64_t *lo);

/* The sum over micro-batches of each rank's own rows, in the fixed tree over [0, total). The
 * group's ranks have the micro-batches [first, first + leaves): rank s has those that
 * choir__tree_run(leaves, s, world) returns, counted from `first`, summed into the nodes that
 * choir__tree_nodes returns for them. If these are all micro-batches of the job, the result is
 * the sum times scale, with the bits of choir__group_tree_reduce. Else there are several
 * results: the nodes that choir__tree_nodes returns for [first, first + leaves), with which
 * another group continues. */
typedef struct choir__tree_scatter {
    const void *nodes; /* (count) of dtype, node k at k * node_stride bytes; read-only */
    size_t node_stride;
    const choir__rows_cut *cuts; /* (cut_count) kept alive by the caller until the call has run,
                               or as long as a recorded step may run it again */
    int cut_count;
    int64_t count, first, leaves, total;
    void *out; /* cut i's rows at out + cuts[i].out; result k at k * out_stride bytes */
    size_t out_stride;
    double scale; /* a number of dtype; 1 unless the group has all micro-batches of the job */
    choir_dtype dtype; /* f32 or f64 */
} choir__tree_scatter;

/* Asynchronous, on the group's queue. Once it is done, peers have read this rank's nodes. All
 * ranks pass the same arguments, except nodes, out, out_stride and the `out` of cuts. Errors:
 * argument (a batch is open, cuts outside [0, count)). */
choir_status choir__group_tree_scatter(choir_group *group, const choir__tree_scatter *args);

/* An all-gather of each rank's rows. */
typedef struct choir__gather_rows {
    const void *mine; /* cut i's rows at mine + cuts[i].out; NULL: already in place in all */
    void *all;        /* cut i at all + cuts[i].at */
    const choir__rows_cut *cuts; /* equal on all ranks; kept alive as above */
    int cut_count;
    choir_dtype dtype;
} choir__gather_rows;

/* Gathers the rows asynchronously, on the group's queue. Once the call is done, peers have read
 * this rank's rows. */
choir_status choir__group_gather_rows(choir_group *group, const choir__gather_rows *args);

/* --- for engines --- */

/* Returns the number of elements in the rank's rows of all cuts. */
int64_t choir__cuts_part(const choir__rows_cut *cuts, int cut_count, int rank, int world);

/* choir__scatter_nodes returns the nodes that a rank of the group holds; choir__scatter_results
 * returns the nodes of the result. Both return their number. */
int choir__scatter_nodes(
    const choir__tree_scatter *args, int rank, int world, choir__node nodes[CHOIR__MAX_NODES]);
int choir__scatter_results(
    const choir__tree_scatter *args, choir__node nodes[CHOIR__MAX_NODES]);

/* Adds up n elements: the sources, in the tree's order, begin at from[i]; result k is written
 * to out + k * out_stride. scratch: CHOIR__REDUCE_SCRATCH bytes. */
void choir__scatter_add(const choir__tree_scatter *args, const choir__node *nodes,
    const char *const *from, int sources, char *out, int64_t n, char *scratch);

/* Returns the kind of collective that carries the given kind: an all-to-all of uneven parts for
 * a tree scatter, an all-gather for gather_rows; other kinds are returned unchanged. */
choir__kind choir__carried_as(choir__kind kind);

/* Runs one of these calls in pieces; `carry` moves each, as a call of choir__carried_as. */
typedef choir_status choir__rows_mover(choir__engine *engine, const choir__call *call);
choir_status choir__rows_run(
    choir__engine *engine, const choir__call *call, choir__rows_mover *carry);

#endif
