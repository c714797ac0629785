/* Tensor parallelism as a strategy: the tree is changed in place; in a step, only the norms'
 * rows remain to be summed over the ranks. */
#include <stdlib.h>

#include "nn/module.h"
#include "parallel/ranks.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/handle.h"

choir_tensor_parallel_opts choir_tensor_parallel_defaults(void)
{
    return (choir_tensor_parallel_opts){0};
}

/* The strategy of the ranks that have parts of a model. */
typedef struct tensor_parallel {
    choir__strategy strategy;
    choir_group *group;
} tensor_parallel;

/* Each number is counted on one rank, or consists of the ranks' parts of a row. */
static choir_status sum_rows(
    choir__strategy *s, choir_device *device, double *numbers, int64_t count)
{
    return choir__ranks_sum(
        CHOIR__STRATEGY_OF(s, tensor_parallel, strategy)->group, device, numbers, count);
}

static const choir__strategy_ops tensor_parallel_ops = {
    .name = "tensor_parallel", .parts = &choir__tp_ops, .sum = sum_rows};

/* Makes the strategy; it joins the run once the ranks have parts. */
static tensor_parallel *new_strategy(choir_scope *run, choir_group *group)
{
    tensor_parallel *t = choir__arena_get(&run->arena, sizeof *t);
    t->strategy.ops = &tensor_parallel_ops;
    t->group = group;
    return t;
}

static choir_status make_plan(choir__tp_plan *plan, const choir_tensor_parallel_opts *opts)
{
    if (opts->rule_count < 0 || (opts->rule_count && !opts->rules))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: %d rules, and no list of them", opts->rule_count);
    choir_status status = choir__tp_can_apply(plan->module);
    if (status != CHOIR_OK)
        return status;
    return opts->rule_count ? choir__tp_plan_rules(plan, opts->rules, opts->rule_count, false)
                            : choir__tp_plan_default(plan);
}

choir_module *choir_tensor_parallel(
    choir_scope *run, choir_module *module, choir_group *group, choir_tensor_parallel_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    choir__tp_plan plan = {.module = module, .ranks = choir_group_world(group)};
    choir_status status = choir__scope_status(run);
    if (status != CHOIR_OK)
        return module;
    choir__module_name(module);
    status = choir__ranks_agree(group, module, "tensor_parallel");
    if (status == CHOIR_OK)
        status = choir__tp_agree(&plan, group, make_plan(&plan, &opts));
    if (status == CHOIR_OK && plan.ranks > 1) {
        plan.strategy = &new_strategy(run, group)->strategy;
        status = choir__tp_apply(&plan, group);
    }
    if (status == CHOIR_OK && plan.ranks > 1)
        choir__strategy_join(plan.strategy, run);
    choir__run_of(run)->micro_first = 0; /* every rank runs a part of every micro-batch */
    free(plan.entries);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return module;
}
