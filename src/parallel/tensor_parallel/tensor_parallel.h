/* Inside tensor parallelism: rules become a list of parameters and of the boxes that this rank
 * has of each (plan.c, default_plan.c), which is applied to the tree (apply.c); ops compute
 * with parts (layers.c, scores.c, collectives.c). */
#ifndef CHOIR_TENSOR_PARALLEL_INTERNAL_H
#define CHOIR_TENSOR_PARALLEL_INTERNAL_H

#include <choir/tensor_parallel.h>
#include "nn/module.h"
#include "tensor/strategy.h"

/* The `split` of a parameter, or of scores, that is distributed over ranks. */
typedef struct choir__tp_part {
    choir__partition base;
    choir_group *group;
    choir_tp_style style; /* COLUMN, ROW, VOCAB */
    /* first: where this part begins along the distributed dimension; whole: its whole size */
    int64_t first, whole;
    choir_group *sharing; /* ranks with an identical part (k and v heads); NULL: none */
} choir__tp_part;

static inline const choir__tp_part *choir__tp_part_of(const choir_tensor *t)
{
    return (const choir__tp_part *)t->split;
}

extern const choir__part_ops choir__tp_ops;

/* --- layers.c, scores.c: the functions of choir__tp_ops --- */

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
choir_tensor *choir__tp_linear_of_gelu(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
choir_tensor *choir__tp_embedding(choir_tensor *table, choir_tensor *ids);
choir_tensor *choir__tp_cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
choir_tensor *choir__tp_argmax(choir_tensor *x);

/* --- the plan --- */

/* A parameter to be distributed: `packed` matrices side by side along dim; each is cut into one
 * run per rank. */
typedef struct choir__tp_entry {
    choir__param *param;
    const char *path; /* path of its layer, or its name */
    choir_tp_style style;
    int dim, packed;
    int64_t units; /* columns or heads of each matrix, the units that are distributed */
    /* 0; else, with fewer units than ranks, the number of ranks that share one unit */
    int shared;
} choir__tp_entry;

typedef struct choir__tp_plan {
    choir__strategy *strategy; /* marks the parts as its own */
    choir_module *module;
    int ranks;
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
/* Replaces each parameter of the plan by this rank's part. Collective. */
choir_status choir__tp_apply(const choir__tp_plan *plan, choir_group *group);

/* Checks that all ranks have the same plan and seed. planned: the status of making the plan on
 * this rank. Collective. Error: mismatch, or planned. */
choir_status choir__tp_agree(
    const choir__tp_plan *plan, choir_group *group, choir_status planned);

#endif
