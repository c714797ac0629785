/* Pipeline plans: the registry of schedules, and making a plan for p devices. */
#include <stdlib.h>

#include "base/base.h"
#include "base/named.h"
#include "parallel/plan/pipeline_plan.h"

/* The registry. */
static const choir__pipeline_schedule schedules[] = {
    {.name = "sequential",
        .chunked = true,
        .bubble = "p - 1",
        .write = choir__pipeline_plan_sequential},
    {.name = "gpipe", .bubble = "(p - 1) / m", .write = choir__pipeline_plan_gpipe},
    {.name = "1f1b", .bubble = "(p - 1) / m", .write = choir__pipeline_plan_1f1b},
    {.name = "interleaved",
        .chunked = true,
        .bubble = "(p - 1) / (v m)",
        .write = choir__pipeline_plan_interleaved},
    {.name = "zero-bubble",
        .split = true,
        .bubble = "(p - 1) max(F + B - W, F, B) / (m (F + B + W))",
        .write = choir__pipeline_plan_zero_bubble},
};
static const choir__name_table table = CHOIR__NAME_TABLE(schedules);

enum { MOST_ACTIONS = 1 << 20, MOST_DEVICES = 1024 };

const char *choir_pipeline_schedule_name(int index)
{
    return index >= 0 && index < (int)CHOIR_COUNT(schedules) ? schedules[index].name : NULL;
}

static choir_status check(
    const choir__pipeline_schedule *schedule, int devices, int chunks, int64_t micros)
{
    if (devices < 1 || devices > MOST_DEVICES)
        return choir__error(CHOIR_ERR_ARGUMENT, "a pipeline: expected 1 to %d devices, got %d",
            MOST_DEVICES, devices);
    if (chunks < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a pipeline: expected 1 chunk per device or more, got %d", chunks);
    if (micros < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a pipeline: expected 1 micro-batch or more, got %lld", (long long)micros);
    if (chunks > 1 && !schedule->chunked)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "schedule %s: expected 1 chunk per device, got %d; 'interleaved' takes several",
            schedule->name, chunks);
    if (micros > MOST_ACTIONS || chunks > MOST_ACTIONS ||
        micros * chunks > MOST_ACTIONS / 3 / devices)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a pipeline of %lld stages and %lld micro-batches: their product may be %d",
            (long long)devices * chunks, (long long)micros, MOST_ACTIONS / 3);
    return CHOIR_OK;
}

static void costs_init(choir_pipeline_plan *plan, const choir_stage_cost *costs)
{
    const double f = 1.0 / plan->chunks;
    plan->cost = choir__alloc((size_t)plan->stages * sizeof *plan->cost);
    for (int s = 0; s < plan->stages; s++)
        plan->cost[s] = costs ? costs[s]
                              : (choir_stage_cost){.forward = f,
                                    .backward = 2 * f,
                                    .backward_input = f,
                                    .backward_weight = f};
}

choir_status choir_pipeline_plan_new(const char *name, int devices, int chunks, int64_t micros,
    const choir_stage_cost *costs, choir_pipeline_plan **out)
{
    if (!name)
        return choir__missing(__func__, "name");
    int at = choir__find_named(&table, name);
    if (at < 0)
        return choir__unknown_name(&table, "pipeline schedule", name);
    const choir__pipeline_schedule *schedule = &schedules[at];
    choir_status status = check(schedule, devices, chunks, micros);
    if (status == CHOIR_OK && costs)
        status = choir__pipeline_plan_costs_check(costs, devices * chunks);
    if (status != CHOIR_OK)
        return status;
    choir_pipeline_plan *plan = choir__calloc(1, sizeof *plan);
    plan->schedule = schedule;
    plan->devices = devices, plan->chunks = chunks, plan->stages = devices * chunks;
    plan->micros = micros;
    plan->each = (int)(chunks * micros * (schedule->split ? 3 : 2));
    const size_t total = (size_t)devices * (size_t)plan->each;
    costs_init(plan, costs);
    plan->actions = choir__alloc(total * sizeof *plan->actions);
    plan->order = choir__alloc(total * sizeof *plan->order);
    for (int d = 0; d < devices; d++)
        schedule->write(plan, d, &plan->actions[(size_t)d * (size_t)plan->each]);
    if (schedule->split && costs)
        choir__pipeline_plan_search(plan);
    if (choir__pipeline_plan_merge(plan, plan->actions, plan->order) < 0) {
        choir_pipeline_plan_free(plan);
        return choir__error(CHOIR_ERR_INTERNAL,
            "schedule %s of %d devices, %d chunks, %lld micro-batches waits for itself", name,
            devices, chunks, (long long)micros);
    }
    *out = plan;
    return CHOIR_OK;
}

void choir_pipeline_plan_free(choir_pipeline_plan *plan)
{
    if (!plan)
        return;
    free(plan->cost);
    free(plan->actions);
    free(plan->order);
    free(plan);
}

const char *choir_pipeline_plan_schedule(const choir_pipeline_plan *plan)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NULL;
    return plan->schedule->name;
}

int choir_pipeline_plan_devices(const choir_pipeline_plan *plan)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return 0;
    return plan->devices;
}

int choir_pipeline_plan_chunks(const choir_pipeline_plan *plan)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return 0;
    return plan->chunks;
}

int64_t choir_pipeline_plan_microbatches(const choir_pipeline_plan *plan)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return 0;
    return plan->micros;
}

const choir_action *choir_pipeline_plan_actions(
    const choir_pipeline_plan *plan, int device, int *count)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NULL;
    if (choir__lacks(count, __func__, "count"))
        return NULL;
    *count = plan->each;
    return &plan->actions[(size_t)device * (size_t)plan->each];
}

const choir_action *choir_pipeline_plan_order(const choir_pipeline_plan *plan, int *count)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NULL;
    if (choir__lacks(count, __func__, "count"))
        return NULL;
    *count = plan->devices * plan->each;
    return plan->order;
}
