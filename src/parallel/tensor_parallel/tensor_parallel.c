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

static choir_status take_first(choir__strategy *s, void *bytes, size_t count)
{
    return choir_group_broadcast(CHOIR__STRATEGY_OF(s, tensor_parallel, strategy)->group, bytes,
        (int64_t)count, CHOIR_U8, 0, NULL);
}

/* The ranks that have the other slices take other micro-batches as this one does. */
static choir_status keep_parts(choir__strategy *s, choir_group *group, int by, uint64_t undone)
{
    (void)s, (void)group, (void)by, (void)undone;
    return CHOIR_OK;
}

static const choir__strategy_ops tensor_parallel_ops = {.name = "tensor_parallel",
    .parts = &choir__tp_ops,
    .sum = sum_rows,
    .take_first = take_first,
    .ranks_turned = keep_parts};

/* One rank has all slices, whatever the others do. */
static choir_status keep_slices(choir__strategy *s, choir_group *group, uint64_t undone)
{
    (void)s, (void)group, (void)undone;
    return CHOIR_OK;
}

static const choir__strategy_ops slices_ops = {
    .name = "tensor_parallel", .parts = &choir__tp_ops, .ranks_changed = keep_slices};

/* Makes the strategy; it joins the run once the ranks have parts. */
static tensor_parallel *new_strategy(choir_scope *run, choir_group *group, int64_t slices)
{
    tensor_parallel *t = choir__arena_get(&run->arena, sizeof *t);
    t->strategy.ops = group ? &tensor_parallel_ops : &slices_ops;
    t->strategy.slices = slices;
    t->strategy.waits = group != NULL;
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

/* Sets the number of slices, which the ranks must divide. */
static choir_status count_slices(choir__tp_plan *plan, int64_t slices)
{
    plan->slices = slices ? slices : plan->ranks;
    if (slices < 0 || slices > CHOIR__TP_MOST)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: expected between 1 and %d slices, got %lld", CHOIR__TP_MOST,
            (long long)slices);
    if (plan->slices % plan->ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "tensor_parallel: %lld slices cannot be shared by %d ranks: the number of ranks must "
            "divide the slices",
            (long long)slices, plan->ranks);
    return CHOIR_OK;
}

/* Makes the plan and, with the other ranks of the group if there are several, applies it. */
static choir_status distribute(choir_scope *run, choir__tp_plan *plan, choir_group *group,
    const choir_tensor_parallel_opts *opts)
{
    choir_status status = count_slices(plan, opts->slices);
    if (status == CHOIR_OK)
        status = choir__module_refuse_f64(plan->module, "tensor_parallel");
    if (status == CHOIR_OK)
        status = make_plan(plan, opts);
    if (group)
        status = choir__tp_agree(plan, group, status);
    if (status != CHOIR_OK || plan->slices == 1)
        return status;
    if (plan->ranks == 1)
        group = NULL;
    plan->strategy = &new_strategy(run, group, plan->slices)->strategy;
    status = choir__tp_apply(plan, group);
    if (status == CHOIR_OK)
        choir__strategy_join(plan->strategy, run);
    return status;
}

choir_module *choir_tensor_parallel(
    choir_scope *run, choir_module *module, choir_group *group, choir_tensor_parallel_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group && !opts.slices) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    choir__tp_plan plan = {.module = module,
        .ranks = group ? choir_group_world(group) : 1,
        .sequence = opts.sequence_parallel};
    choir_status status = choir__scope_status(run);
    if (status != CHOIR_OK)
        return module;
    choir__module_name(module);
    if (group)
        status = choir__ranks_agree(group, module, "tensor_parallel");
    if (status == CHOIR_OK)
        status = distribute(run, &plan, group, &opts);
    if (group)
        choir__run_of(run)->micro_first = 0; /* every rank runs a part of every micro-batch */
    free(plan.entries);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return module;
}
