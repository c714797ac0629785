/* Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019): the ranks of a group work together
 * on every micro-batch, each with a part of the large weights.
 *
 *   column   y_r = x W_r: a range of the output's columns; x is whole, y is split
 *   row      y = sum_r x_r W_r + b: x is split, y is whole
 *   heads    attention: queries, keys and values by whole heads, the output projection by rows;
 *            if there are fewer key and value heads than slices, slices share a head
 *   vocab    a table of tokens by rows: an embedding, and the scores x W^T of the next token,
 *            which stay split; choir_cross_entropy and choir_argmax accept split scores
 *
 * A column layer, an elementwise function and a row layer together cost one all-reduce forward
 * and one backward. All other layers (norms, residuals, the biases of row layers) are
 * replicated: every rank computes them, with the same bits. With sequence parallelism
 * (Korthikanti et al., 2022) the ranks share their tokens instead: results (B, L, C) of row
 * layers and embeddings, and results computed from them token by token (norms, dropout, sums,
 * functions of single elements), are this rank's part along L, which T runs of tokens make up,
 * of lengths that differ by one at most. A reduce-scatter and a gather replace each all-reduce;
 * a layer's input is gathered again in backward. Other ops get all tokens. A module that asks
 * for the size of such a tensor sees the part. Sequences of fewer than T tokens stay whole.
 * The bits are the same with it and without. A parameter keeps its name and
 * starts with this rank's slice of the whole parameter's initial values; its tensor, gradient
 * and optimizer state cover this slice.
 *
 * The sums that ranks share are cut into T slices, and added in a fixed tree. So at
 * equal T one device, every number of ranks that divides T, and such ranks beside DDP or FSDP
 * give the same bits in losses, gradients, norms, weights and optimizer state. One device takes
 * part with group NULL and as many slices. Another T changes rounding: compared with T = 1,
 * gradients of a micro-batch agree within 1e-5 of their norm (f32), and losses of the first
 * steps within 1e-5 of their value.
 *
 * A parameter that stays whole cannot be used among the columns of a rank: gradients of the
 * ranks would differ, so ops refuse it in training. Norms of single heads in Choir's own
 * attention have a copy of their weight in each slice.
 *
 * Dropout between a column layer and its row layer drops the elements that one device drops, if
 * only functions of single elements come before it.
 *
 * Threads: the scope's thread, which also issues to the group. Collective: all functions, in
 * the same order on all ranks, and every forward, backward and optimizer step of a split model.
 */
#ifndef CHOIR_TENSOR_PARALLEL_H
#define CHOIR_TENSOR_PARALLEL_H

#include <choir/group.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_tp_style {
    CHOIR_TP_COLUMN, /* a linear layer's outputs */
    CHOIR_TP_ROW,    /* a linear layer's inputs */
    CHOIR_TP_HEADS,  /* the linear layers of one of Choir's attention modules */
    CHOIR_TP_VOCAB   /* an embedding or the last linear layer; parts differ by up to 1 row */
} choir_tp_style;

typedef struct choir_tp_rule {
    /* Paths of modules, or names of parameters that their module passes to choir_linear or
     * choir_embedding itself: "*.mlp.c_fc". A star matches any text. */
    const char *path;
    choir_tp_style style;
    /* COLUMN: number of matrices stored side by side; each is split; 0: one */
    int packed;
} choir_tp_rule;

typedef struct choir_tensor_parallel_opts {
    const choir_tp_rule *rules; /* the first rule that matches a layer applies */
    int rule_count;             /* 0: the model's default plan */
    int64_t slices;             /* T, a multiple of the ranks; 0: one per rank */
    bool sequence_parallel;     /* the ranks share the tokens between these layers */
} choir_tensor_parallel_opts;

/** Returns options without rules, which select a default plan. For gpt2, bert, llama and
 * its relatives, it splits attention by heads, the layers after it by columns and rows, and
 * tables of tokens by rows. For other models, it splits what choir_module_contraction has
 * marked, and in sequences of layers each pair of linear layers with only activations between
 * them, if the number of slices divides the width there. */
choir_tensor_parallel_opts choir_tensor_parallel_defaults(void);

/**
 * Distributes the weights of module, and of all modules in it, over the ranks of group, like
 * PyTorch's parallelize_module; returns module. group NULL: this rank alone has all of
 * opts.slices slices, so nothing moves, and only the order of sums changes. Call it before the
 * module has an optimizer and before any other strategy wraps it. If the module was not used
 * before, each rank draws only its own parts.
 *
 * Errors, which stick to the run: argument (sizes that the slices do not divide, naming layer
 * and sizes; slices that the ranks do not divide; a rule that matches nothing; no default plan
 * for this model), mismatch (ranks with different rules, models, seeds or kernels), state (the
 * module has an optimizer), the group's.
 */
choir_module *choir_tensor_parallel(choir_scope *run, choir_module *module, choir_group *group,
    choir_tensor_parallel_opts opts);

/* Collectives that gradients pass through, for a user's own layers. All calls are queued, as in
 * distributed.h. The result joins x's scope, and errors stick to it. A negative dim counts from
 * the end; the number of ranks must divide a dimension that is split. Each comment says what
 * backward does to the gradient. */

/** Returns x. Backward all-reduces the gradient. */
choir_tensor *choir_tp_copy(choir_tensor *x, choir_group *group);
/** Returns the sum of the ranks' x. Backward passes the gradient on unchanged. */
choir_tensor *choir_tp_reduce(choir_tensor *x, choir_group *group);
/** Joins the ranks' x along dim, in rank order; a result of sequence parallelism along its
 * tokens, dimension 1. Backward takes this rank's part. */
choir_tensor *choir_tp_gather(choir_tensor *x, choir_group *group, int dim);
/** Returns this rank's part of x along dim. Backward joins the ranks' gradients. */
choir_tensor *choir_tp_split(choir_tensor *x, choir_group *group, int dim);
/** Joins the ranks' x along dim. Backward returns this rank's part of the sum of the gradients,
 * for ranks that use the result differently. Together with choir_tp_reduce_scatter it gives
 * sequence parallelism (Korthikanti et al., 2022). */
choir_tensor *choir_tp_all_gather(choir_tensor *x, choir_group *group, int dim);
/** Returns this rank's part, along dim, of the sum of the ranks' x. Backward joins the ranks'
 * gradients. */
choir_tensor *choir_tp_reduce_scatter(choir_tensor *x, choir_group *group, int dim);

#ifdef __cplusplus
}
#endif
#endif
