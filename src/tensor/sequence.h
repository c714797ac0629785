/* Sequences that are cut into chunks of tokens.
 *
 * The S chunks are declared, as the micro-batches are. In memory every sample's sequence of L
 * tokens is S leaves of L / S tokens, in an order that balances causal attention
 * (device/kernels/attention.h). Sums over the tokens of a micro-batch have S leaves: leaf s has
 * the tokens of leaf s of all samples. Ranks may have runs of leaves; then choir__chunk_ops has
 * their common work, and sums over leaves are completed over the ranks.
 *
 * Ops find the cut in their scope. Those that add over tokens ask choir__sequence_cut for the
 * cut of their rows; ops that are not choir__op.by_token are refused.
 *
 * A rank's leaves complete one node of the tree, or several:
 *
 *     leaves 0 1 2 3 | 4 5 6 7     (0 .. 3)     | (4 .. 7)         one: a sum is completed
 * later, with others of its bucket leaves 0 1 2 | 3 4 5         (0 + 1)  2   | 3  (4 + 5)
 * several: the op that adds joins its nodes (ops/sliced/nodes.h)
 */
#ifndef CHOIR_SEQUENCE_H
#define CHOIR_SEQUENCE_H

#include "tensor/launch.h"
#include "tensor/scope.h"
#include "tensor/strategy.h"

typedef struct choir__sequence {
    int64_t chunks;        /* S */
    int64_t length;        /* L, the tokens of a sample on all ranks */
    int64_t first, leaves; /* leaves [first, first + leaves) are here */
    choir__strategy
        *by;    /* the strategy whose ranks have the other leaves; NULL: all are here */
    bool joins; /* the leaves here are several nodes of the tree */
} choir__sequence;

/* Returns whether what ops add over tokens are parts of sums, which ranks complete later. */
static inline bool choir__sequence_parts(const choir__sequence *s)
{
    return s && s->by && !s->joins;
}

/* Returns the tokens of a sample that are here. */
static inline int64_t choir__sequence_tokens(const choir__sequence *s)
{
    return s->length / s->chunks * s->leaves;
}

/* Returns the rows of a micro-batch on all ranks; rows: on this rank. */
static inline int64_t choir__sequence_rows(const choir_scope *scope, int64_t rows)
{
    const choir__sequence *s = scope->sequence;
    return s && s->by ? rows / s->leaves * s->chunks : rows;
}

/* Returns the sequence some of whose tokens x has, or NULL: x is a weight, or in a scope
 * without chunks. scope: the op's. */
static inline const choir__sequence *choir__sequence_of(
    const choir_scope *scope, const choir_tensor *x)
{
    return choir__is_weight(x) ? NULL : scope->sequence;
}

/* Returns the sequence of x's tokens if an op joins its sums over them; else NULL. */
static inline const choir__sequence *choir__joining(
    const choir_scope *scope, const choir_tensor *x)
{
    const choir__sequence *s = choir__sequence_of(scope, x);
    return s && s->joins ? s : NULL;
}

#define CHOIR__SEQUENCE_ROWS "expected a row per token, as sequences are cut into chunks"

/* Like choir_cat, along a dimension behind the tokens' (of heads, or within them), where it
 * works token by token. */
choir_tensor *choir__cat_features(choir_tensor *const *parts, int count, int dim);

/* Returns whether the rows of x can be the tokens of whole samples, or x has no tokens. */
static inline bool choir__sequence_fits(const choir_scope *scope, const choir_tensor *x)
{
    const choir__sequence *s = choir__sequence_of(scope, x);
    return !s || choir__rows(x) % choir__sequence_tokens(s) == 0;
}

/* Returns the cut of a sum over the rows of x, one per token of each sample; no cut if x has no
 * tokens, or in a scope without chunks. The rows fit. */
choir__cut choir__sequence_cut(const choir_scope *scope, const choir_tensor *x);

/* Returns whether t is a weight that an op has computed where ranks have parts of sums: its
 * gradient is summed over the ranks before the op's backward, which then is one device's. */
bool choir__sequence_is_whole(const choir_tensor *t);

/* Returns the tokens that are here of x, whose dimension `dim` has the tokens of a sample in
 * order: a new tensor without a tape entry. Returns x in a scope without chunks, or if x has no
 * such dimension. */
choir_tensor *choir__sequence_own(choir_scope *scope, choir_tensor *x, int dim);

/* Returns the tokens of all ranks of x, in the order of the leaves: a tensor without a tape
 * entry.
 */
choir_tensor *choir__sequence_whole(choir_scope *scope, choir_tensor *x, int dim);

/* Returns the tokens of all ranks of x, in their own order: a tensor without a tape entry. */
choir_tensor *choir__sequence_in_order(choir_scope *scope, choir_tensor *x, int dim);

/* Returns the sum of the ranks' x, which is also its gradient's way back. */
choir_tensor *choir__sequence_sum(choir_tensor *x);

/* Called for a gradient of a parameter that is the sum over all tokens already: where ranks sum
 * gradients, others than the first give -0 in its place, which changes nothing. g is the
 * caller's own. */
void choir__sequence_given_once(choir_tensor *g);

/* Records that an op cannot run on a sequence that is cut, and returns a poisoned tensor. */
choir_tensor *choir__sequence_refuse(choir_scope *scope, const char *op);

#endif
