/* Sequence parallelism: the ranks share the tokens of results between tensor-parallel layers.
 *
 *     T = 4 slices of 10 tokens     0 1 2 | 3 4 5 | 6 7 | 8 9      two ranks: 6 and 4
 *
 * A row layer's sum is reduce-scattered along the tokens, and what a column layer reads is
 * gathered; tensor/tokens.h has the rest. */
#include <choir/distributed.h>

#include "parallel/blocks.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"
#include "tensor/tokens.h"

/* Returns the number of runs that x's tokens have, which the ranks share: slices, or chunks of
 * the sequence. 0: a rank may have no token, or ranks do not divide the chunks. */
static int64_t runs_of(const choir_tensor *x, const choir__tp_part *part)
{
    const choir__sequence *s = x->scope->sequence;
    int64_t tokens = x->shape.dim[1], slices = part->base.cut.leaves;
    if (!s)
        return tokens < slices ? 0 : slices;
    bool shared =
        tokens == choir__sequence_tokens(s) && s->leaves % choir_group_world(part->group) == 0;
    return shared ? s->leaves : 0;
}

const choir__partition *choir__tp_tokens(const choir_tensor *x, const choir__tp_part *part)
{
    if (!part->sequence || x->poisoned || x->shape.ndim != 3)
        return NULL;
    int64_t runs = runs_of(x, part), own = runs / choir_group_world(part->group), unused;
    if (!runs)
        return NULL;
    choir__tp_part *tokens = choir__arena_get(&x->scope->arena, sizeof *tokens);
    *tokens = (choir__tp_part){.base = {.by = part->base.by,
                                   .tokens = true,
                                   .dim = 1,
                                   .cut = {1, runs},
                                   .first = choir_group_rank(part->group) * own,
                                   .own = own,
                                   .size = x->shape.dim[1]},
        .group = part->group};
    choir__tree_run(tokens->base.size, tokens->base.first, runs, &tokens->base.at, &unused);
    return &tokens->base;
}

static choir_group *group_of(const choir__partition *tokens)
{
    return ((const choir__tp_part *)tokens)->group;
}

choir_tensor *choir__tp_all_tokens(
    const choir__partition *tokens, choir_scope *scope, choir_tensor *x)
{
    return choir__blocks_gather(
        scope, x, group_of(tokens), x->shape.ndim - 2, tokens->size, tokens->cut.leaves);
}

choir_tensor *choir__tp_own_tokens(
    const choir__partition *tokens, choir_scope *scope, choir_tensor *x)
{
    return choir__blocks_own(scope, x, group_of(tokens), x->shape.ndim - 2, tokens->cut.leaves);
}

/* Returns node 0 of the nodes, a view of (B, L, C) on the stack. */
static choir_tensor first_node(const choir_tensor *nodes)
{
    choir_tensor t = *nodes;
    t.count /= nodes->shape.dim[0];
    t.shape.ndim--;
    for (int d = 0; d < t.shape.ndim; d++)
        t.shape.dim[d] = nodes->shape.dim[d + 1];
    choir__set_row_major(&t);
    return t;
}

choir_tensor *choir__tp_join_tokens(
    const choir__partition *part, const choir__partition *tokens, choir_tensor *nodes)
{
    choir_group *group = group_of(tokens);
    choir_scope *scope = nodes->scope;
    int64_t runs = tokens->cut.leaves;
    choir_tensor node = first_node(nodes);
    if (choir__tp_one_node(part->cut.leaves, choir_group_world(group)))
        return choir__blocks_reduce(scope, &node, group, CHOIR_SUM, tokens->dim, runs);
    choir_status status = choir__tp_join(part, nodes, false);
    if (status == CHOIR_OK)
        return choir__blocks_own(scope, &node, group, tokens->dim, runs);
    choir__scope_fail(scope, status);
    return choir__failed_in(scope);
}
