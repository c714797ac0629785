/* Tokens that ranks share between the parts of a block: sequence parallelism (Korthikanti et
 * al., 2022).
 *
 * Ranks that have slices of the weights may share the tokens of tensors between these layers:
 * one (B, L, C) whose mark (choir__partition.tokens) says that it has the tokens of this
 * rank's slices alone, of T runs along L; or, of a sequence in chunks (sequence.h), some of the
 * chunks that are here.
 *
 *     rows of a layer --reduce-scatter--> + residual, dropout, norm --all-gather--> columns
 *
 * Ops that list an operand in choir__op.tokens_in compute token by token: they take it as it
 * is, and their result has its tokens. All others get the tokens of all ranks. Sums over tokens
 * that remain (the gradients of norms' weights) have T leaves, shared or not. */
#ifndef CHOIR_TOKENS_H
#define CHOIR_TOKENS_H

#include "tensor/launch.h"
#include "tensor/op.h"
#include "tensor/strategy.h"

/* Returns t's mark if it has this rank's tokens alone, or NULL. */
static inline const choir__partition *choir__tokens_of(const choir_tensor *t)
{
    return t->split && t->split->tokens ? t->split : NULL;
}

/* Returns the number of tokens of a sample that are here. */
static inline int64_t choir__tokens_here(const choir__partition *tokens)
{
    int64_t unused, end;
    choir__tree_run(
        tokens->size, tokens->first + tokens->own - 1, tokens->cut.leaves, &unused, &end);
    return end - tokens->at;
}

/* Makes the operands of an op agree about their tokens; may replace them. Returns false if the
 * scope has an error. */
bool choir__tokens_meet(choir_scope *scope, const choir__op *op, choir_tensor **in, int count);
/* Marks the result of an op that computes token by token. */
void choir__tokens_pass(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count);

/* Returns the tokens of all ranks of x, which has a mark: an op, whose backward returns this
 * rank's tokens of the gradient. */
choir_tensor *choir__tokens_all(choir_tensor *x);

/* Returns the leaves of a sum over the rows of x, a row per token: chunks of its sequence, or T
 * runs of tokens where weights have T slices. */
choir__cut choir__tokens_cut(const choir_scope *scope, const choir_tensor *x);

#endif
