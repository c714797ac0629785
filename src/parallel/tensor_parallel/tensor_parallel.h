/* Inside tensor parallelism: rules become a list of parameters and of the boxes that this rank
 * has of each (plan_of_rules.c, default_plan.c), which is applied to the tree (apply.c); ops
 * compute with parts (layers.c, scores.c, collectives.c). */
#ifndef CHOIR_TENSOR_PARALLEL_INTERNAL_H
#define CHOIR_TENSOR_PARALLEL_INTERNAL_H

#include <choir/tensor_parallel.h>
#include "nn/module.h"
#include "tensor/op.h"
#include "tensor/strategy.h"

enum { CHOIR__TP_PIECES = 3 }; /* matrices of unequal width side by side */

/* The `split` of a parameter, or of scores, in slices. */
typedef struct choir__tp_part {
    choir__partition base;
    choir_group *group;      /* NULL: one rank has all slices */
    choir_tp_style style;    /* COLUMN, ROW, VOCAB */
    choir__partition result; /* COLUMN: the mark of results, where columns lie side by side */
    choir_group *sharing;    /* ranks with an identical part (k and v heads); NULL: none */
    bool sequence;           /* ranks share the tokens of row layers' results */
    /* NULL, or (CHOIR__TP_PIECES) this rank's parts of matrices of unequal width, which are
     * computed one by one; the rows of each begin at `row` */
    const struct choir__tp_part *pieces;
    int64_t row, rows;
} choir__tp_part;

static inline const choir__tp_part *choir__tp_part_of(const choir_tensor *t)
{
    return (const choir__tp_part *)t->split;
}

extern const choir__part_ops choir__tp_ops;

/* --- layers.c, scores.c: the functions of choir__tp_ops --- */

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of);
choir_tensor *choir__tp_embedding(choir_tensor *table, choir_tensor *ids);
choir_tensor *choir__tp_cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
choir_tensor *choir__tp_argmax(choir_tensor *x);

/* --- pieces.c: matrices of unequal width in one weight --- */

struct choir__tp_entry;
/* Fills in the boxes of slices [first, first + own) of the entry's matrices. */
void choir__tp_piece_boxes(const struct choir__tp_entry *e, int64_t first, int64_t own,
    int64_t slices, choir__box *boxes);
/* Makes the parts of a mark's matrices. */
void choir__tp_make_pieces(
    const struct choir__tp_entry *e, choir_scope *run, int64_t slices, choir__tp_part *mark);
/* A column layer whose weight has them. */
choir_tensor *choir__tp_linear_pieces(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, choir__linear_of of);

/* --- collectives.c --- */

choir_status choir__tp_join(const choir__partition *part, choir_tensor *nodes, bool sharing);
/* Returns whether the slices of each of `world` ranks complete one node of the tree, so that
 * the tree over ranks is its upper part. */
bool choir__tp_one_node(int64_t slices, int world);

/* --- tokens.c: tokens that the ranks share --- */

/* Returns the mark of this rank's tokens for a result of x's (B, L, ...), or NULL: the ranks do
 * not share them. */
const choir__partition *choir__tp_tokens(const choir_tensor *x, const choir__tp_part *part);
choir_tensor *choir__tp_all_tokens(
    const choir__partition *tokens, choir_scope *scope, choir_tensor *x);
choir_tensor *choir__tp_own_tokens(
    const choir__partition *tokens, choir_scope *scope, choir_tensor *x);
choir_tensor *choir__tp_join_tokens(
    const choir__partition *part, const choir__partition *tokens, choir_tensor *nodes);

/* --- the plan --- */

enum { CHOIR__TP_MOST = 1024 }; /* slices */

/* A parameter to be cut: `packed` matrices side by side along dim; each has T slices, and each
 * rank has a run of them. */
typedef struct choir__tp_entry {
    choir__param *param;
    const char *path; /* path of its layer, or its name */
    choir_tp_style style;
    int dim, packed;
    int64_t units;  /* columns or heads of each matrix, the units that are distributed */
    int64_t shared; /* 0; else, with fewer units than slices, the slices that share a unit */
    int64_t widths[CHOIR__TP_PIECES]; /* zeros; else sizes of the packed matrices along dim 0 */
} choir__tp_entry;

typedef struct choir__tp_plan {
    choir__strategy *strategy; /* marks the parts as its own */
    choir_module *module;
    int ranks;      /* 1: this rank has all slices */
    int64_t slices; /* T, a multiple of the ranks */
    bool sequence;  /* ranks share tokens between layers */
    choir__tp_entry *entries;
    int count;
} choir__tp_plan;

/* Adds the parameters that the rules name. optional: a rule that matches nothing is skipped.
 * Error: argument. */
choir_status choir__tp_plan_rules(
    choir__tp_plan *plan, const choir_tp_rule *rules, int count, bool optional);
/* Makes the plan for a model without rules. */
choir_status choir__tp_plan_default(choir__tp_plan *plan);
/* Adds a linear layer, an embedding or an attention. Parameters that are in the plan already
 * keep their entries. */
choir_status choir__tp_plan_layer(
    choir__tp_plan *plan, choir_module *layer, const choir_tp_rule *rule);

/* Checks that no optimizer or strategy has taken over the module's parameters yet. Errors:
 * state, device. */
choir_status choir__tp_can_apply(choir_module *module);
/* Replaces each parameter of the plan by this rank's part. group NULL: one rank keeps all
 * parameters whole and marks them. Collective. */
choir_status choir__tp_apply(const choir__tp_plan *plan, choir_group *group);

/* Checks that all ranks have the same plan and seed. planned: the status of making the plan on
 * this rank. Collective. Error: mismatch, or planned. */
choir_status choir__tp_agree(
    const choir__tp_plan *plan, choir_group *group, choir_status planned);

#endif
