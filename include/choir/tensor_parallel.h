/* Tensor parallelism (Shoeybi et al., "Megatron-LM", 2019): the ranks of a group work together
 * on every micro-batch, each with a part of the large weights.
 *
 *   column   y_r = x W_r: a run of the output's columns; x is whole, y a part
 *   row      y = sum_r x_r W_r + b: x is a part, y is whole
 *   heads    attention: queries, keys and values by whole heads, the output projection by rows;
 *            where there are fewer key and value heads than ranks, ranks share one
 *   vocab    a table of tokens by rows: an embedding, and the scores x W^T of the next token,
 *            which stay in parts; choir_cross_entropy and choir_argmax take them so
 *
 * A column layer, a function of each number by itself and a row layer cost one all-reduce
 * forward and one back. All else (norms, residuals, the biases of row layers) is on every rank,
 * computed alike, with the same bits. A parameter keeps its name, and starts with the slice
 * that this rank has of the values the whole one would have; its tensor, gradient and optimizer
 * state are of this part.
 *
 * Not under the rule of same bits: sums over columns are cut at the parts. The same number of
 * ranks gives the same bits run after run, recorded or not; against one device, gradients of a
 * micro-batch agree within 1e-5 of their norm (f32), losses of the first steps within 1e-5 of
 * their value.
 *
 * Dropout between a column and its row layer draws alike for each rank's part.
 *
 * Threads: those of the scope and of the group. Collective: all, in the same order on all
 * ranks; so is every forward, backward and optimizer step of a model in parts. */
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
    CHOIR_TP_VOCAB   /* an embedding, or a last linear layer; parts may differ in size by 1 */
} choir_tp_style;

typedef struct choir_tp_rule {
    /* Of modules, by their paths, or of parameters that their module gives to choir_linear or
     * choir_embedding itself, by their names: "*.mlp.c_fc". A star stands for any text. */
    const char *path;
    choir_tp_style style;
    int packed; /* COLUMN: so many matrices side by side, each dealt out; 0: one */
} choir_tp_rule;

typedef struct choir_tensor_parallel_opts {
    const choir_tp_rule *rules; /* the first that matches a layer holds for it */
    int rule_count;             /* 0: the plan for the model */
} choir_tensor_parallel_opts;

/** No rules: attention by heads, the layers behind it by columns and rows, tables of tokens by
 * rows, for gpt2, llama, mistral and bert; else each two linear layers with nothing but an
 * activation between them, where the ranks divide the width there. */
choir_tensor_parallel_opts choir_tensor_parallel_defaults(void);

/**
 * Deals the weights of module, and of all in it, out to the ranks of group, like PyTorch's
 * parallelize_module; returns module. Before it has an optimizer and before any other strategy
 * wraps it. Where it has not been used yet the parts alone are ever drawn.
 *
 * Errors, which stick to the run: argument (sizes that the ranks do not divide, naming layer
 * and sizes; a rule that matches nothing; no plan for such a model), mismatch (ranks with other
 * rules, models, seeds, or that compute other bits), state (the module has an optimizer), the
 * group's.
 */
choir_module *choir_tensor_parallel(choir_scope *run, choir_module *module, choir_group *group,
    choir_tensor_parallel_opts opts);

/* Collectives that gradients pass through, for layers of one's own. All are queued, as those of
 * distributed.h are. x joins its scope; errors stick to it. dim counts from the end if
 * negative, and must be a multiple of the ranks where it is dealt out. Beside each: what its
 * backward does to the gradient. */

/** x; all-reduced. */
choir_tensor *choir_tp_copy(choir_tensor *x, choir_group *group);
/** The sum of the ranks' x; as it is. */
choir_tensor *choir_tp_reduce(choir_tensor *x, choir_group *group);
/** The ranks' x side by side along dim, in rank order; this rank's part. */
choir_tensor *choir_tp_gather(choir_tensor *x, choir_group *group, int dim);
/** This rank's part of x along dim; the ranks' side by side. */
choir_tensor *choir_tp_split(choir_tensor *x, choir_group *group, int dim);
/** The ranks' x side by side along dim; this rank's part of the sum. For ranks that go on
 * differently: with choir_tp_reduce_scatter, sequence parallelism (Korthikanti et al., 2022).
 */
choir_tensor *choir_tp_all_gather(choir_tensor *x, choir_group *group, int dim);
/** This rank's part along dim of the sum of the ranks' x; the ranks' side by side. */
choir_tensor *choir_tp_reduce_scatter(choir_tensor *x, choir_group *group, int dim);

#ifdef __cplusplus
}
#endif
#endif
