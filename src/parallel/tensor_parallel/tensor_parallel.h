/* Inside tensor parallelism: the rules made into a list of parameters and of which boxes this
 * rank has of them (plan.c, default_plan.c), given to the tree (apply.c), and what ops do with
 * parts (layers.c, scores.c, collectives.c). */
#ifndef CHOIR_TENSOR_PARALLEL_INTERNAL_H
#define CHOIR_TENSOR_PARALLEL_INTERNAL_H

#include <choir/tensor_parallel.h>
#include "nn/module.h"
#include "tensor/strategy.h"

/* What stands in a parameter's, or in scores', split. */
typedef struct choir__tp_part {
    choir__partition base;
    choir_group *group;
    choir_tp_style style; /* COLUMN, ROW, VOCAB */
    int64_t first, whole; /* along the dimension that is dealt out: where this part begins */
    choir_group *sharing; /* ranks that have the very same part (k and v heads); NULL: alone */
} choir__tp_part;

static inline const choir__tp_part *choir__tp_part_of(const choir_tensor *t)
{
    return (const choir__tp_part *)t->split;
}

extern const choir__part_ops choir__tp_ops;

/* --- layers.c, scores.c: the functions of choir__tp_ops --- */

choir_tensor *choir__tp_linear(
    choir_tensor *x, choir_tensor *weight, choir_tensor *bias, bool in_out);
choir_tensor *choir__tp_embedding(choir_tensor *table, choir_tensor *ids);
choir_tensor *choir__tp_cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts opts);
choir_tensor *choir__tp_argmax(choir_tensor *x);

/* --- the plan --- */

/* A parameter to be dealt out: `packed` matrices side by side along dim, of each of which a
 * rank has a run. */
typedef struct choir__tp_entry {
    choir__param *param;
    const char *path; /* of its layer, or its name */
    choir_tp_style style;
    int dim, packed;
    int64_t units; /* what is dealt out along dim of each: columns, or heads */
    int shared;    /* 0, or fewer units than ranks: so many ranks have the same one */
} choir__tp_entry;

typedef struct choir__tp_plan {
    choir__strategy *strategy; /* that parts are marked with */
    choir_module *module;
    int ranks;
    choir__tp_entry *entries;
    int count, room;
} choir__tp_plan;

/* Adds what the rules name; optional: one that matches nothing is left out. Error: argument. */
choir_status choir__tp_plan_rules(
    choir__tp_plan *plan, const choir_tp_rule *rules, int count, bool optional);
/* The plan for a model that was given none. */
choir_status choir__tp_plan_default(choir__tp_plan *plan);
/* A linear layer, an embedding or an attention. What is in the plan already stays as it is. */
choir_status choir__tp_plan_layer(
    choir__tp_plan *plan, choir_module *layer, const choir_tp_rule *rule);

/* Whether the module's parameters are still nobody's. Error: state, device. */
choir_status choir__tp_can_apply(choir_module *module);
/* Gives the parameters of the plan their parts. Collective. */
choir_status choir__tp_apply(const choir__tp_plan *plan, choir_group *group);

/* Ranks have the same plan, and seed; planned: what making it came to on this one. Collective.
 * Error: mismatch, or planned. */
choir_status choir__tp_agree(
    const choir__tp_plan *plan, choir_group *group, choir_status planned);

#endif
