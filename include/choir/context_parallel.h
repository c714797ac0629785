/* Context parallelism: the ranks of a group work together on every micro-batch, each on some of
 * the tokens of each sample, so that n ranks can train on sequences that are n times as long.
 *
 * The rule: a sequence of L tokens is cut into S chunks, which the user declares, as the number
 * of micro-batches. A rank has S / n of them. Attention is defined chunk by chunk, and sums
 * over tokens (gradients of weights, losses) have one leaf per chunk, added in the fixed tree
 * below the micro-batch. So at equal S one device, and any number of ranks that works here,
 * give the same bits. S itself changes rounding and nothing else; S = 1 is training without
 * chunks.
 *
 * Where S / n is no power of two, a rank's sums are several nodes of the tree, which each op
 * joins at once, instead of with all gradients of a bucket: the bits are the same, but ranks
 * meet more often. Ranks of tensor_parallel beside them then do not share tokens.
 *
 * Chunks are stored in another order: 0, S-1, 1, S-2, ... Equal runs of that order are equal
 * work under a causal mask, wherever twice the number of ranks divides S.
 *
 * Ranks exchange the heads of attention (each rank attends to all tokens with some of the
 * heads; Jacobs et al., "DeepSpeed Ulysses", 2023), or stream the keys and values of one chunk
 * after another to all (after Liu et al., "Ring Attention", 2023). Both compute the same bits.
 *
 * A model takes part if all of its ops work token by token, except attention: gpt2, llama
 * and its relatives, and bert where it predicts or labels words. Other ops are refused, with
 * their name. In evaluation sequences are cut by choir_evaluate alone, if its `chunks` says so.
 *
 * A module of one's own may compute its weights from parameters (and tensors of the run), in
 * f64 too, and spread a parameter over the tokens by broadcasting: sums over tokens have the
 * leaves above, and a computed weight's gradient is summed over the ranks before the backward
 * of the ops that computed it.
 *
 * Threads: the scope's thread, which also issues to the group. Collective:
 * choir_context_parallel, every forward that cuts, every backward and optimizer step.
 */
#ifndef CHOIR_CONTEXT_PARALLEL_H
#define CHOIR_CONTEXT_PARALLEL_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_cp_exchange {
    CHOIR_CP_AUTO,  /* heads where the ranks divide them, and no bias is added to scores */
    CHOIR_CP_HEADS, /* all-to-all */
    CHOIR_CP_KEYS   /* chunks of keys and values, one after another */
} choir_cp_exchange;

typedef struct choir_context_parallel_opts {
    int64_t chunks; /* S, the chunks of a sequence; 0: one per rank */
    choir_cp_exchange exchange;
} choir_context_parallel_opts;

choir_context_parallel_opts choir_context_parallel_defaults(void);

/**
 * Returns module, wrapped so that in training it cuts its inputs, (B, L) each, along their
 * second dimension. Its output has this rank's tokens, (B, L / n, ...). choir_cross_entropy
 * takes the targets of the whole sequences, (B, L), and gives the loss of the whole micro-batch
 * on each rank. Wrap it before the module has an optimizer and before any other strategy wraps
 * it; ddp and fsdp may then wrap the result, over the ranks that have the same tokens.
 *
 * group NULL: one device, which computes all chunks.
 *
 * Errors, which stick to the run: argument (chunks below 1, ranks that do not divide them),
 * mismatch (ranks with different models, seeds or kernels), state (the module has an
 * optimizer), the group's. A forward's: shape (chunks that do not divide the tokens), argument
 * (an op that works across tokens).
 */
choir_module *choir_context_parallel(choir_scope *run, choir_module *module, choir_group *group,
    choir_context_parallel_opts opts);

#ifdef __cplusplus
}
#endif
#endif
