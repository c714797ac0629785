/* Inside pipeline plans: the interface of a schedule, and the work of each file.
 *
 *    pipeline_plan.c  the registry of schedules; making and freeing plans
 *    orders.c         each device's order, by rank arithmetic
 *    search.c         zero-bubble for measured costs: finds an order by search
 *    simulate.c       times: dependencies between actions; formulas
 *    print.c, svg.c   pictures */
#ifndef CHOIR_PARALLEL_PLAN_PIPELINE_PLAN_H
#define CHOIR_PARALLEL_PLAN_PIPELINE_PLAN_H

#include <choir/pipeline_plan.h>

#include <stdbool.h>

typedef struct choir__pipeline_schedule {
    const char *name;
    bool chunked, split; /* several chunks per device; B and W are separate actions */
    const char *bubble;  /* the idle time's formula as text */
    /* Writes all actions of a device: chunks * microbatches * (split ? 3 : 2). */
    void (*write)(const choir_pipeline_plan *plan, int device, choir_action *actions);
} choir__pipeline_schedule;

struct choir_pipeline_plan {
    const choir__pipeline_schedule *schedule;
    int devices, chunks, stages;
    int64_t micros;
    int each;               /* actions per device */
    choir_stage_cost *cost; /* (stages) */
    choir_action *actions;  /* (devices, each) */
    choir_action *order;    /* (devices * each) */
};

/* --- pipeline_plan.c --- */

choir_status choir__pipeline_plan_costs_check(const choir_stage_cost *costs, int stages);

/* --- orders.c --- */

void choir__pipeline_plan_sequential(
    const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__pipeline_plan_gpipe(
    const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__pipeline_plan_1f1b(
    const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__pipeline_plan_interleaved(
    const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__pipeline_plan_zero_bubble(
    const choir_pipeline_plan *plan, int device, choir_action *actions);

/* 1f1b with each W right after its B. A zero-bubble plan is never slower than this order. */
void choir__pipeline_plan_split_1f1b(
    const choir_pipeline_plan *plan, int device, choir_action *actions);

/* --- search.c --- */

/* Replaces the orders of a zero-bubble plan by the shortest ones that it finds for the plan's
 * costs. */
void choir__pipeline_plan_search(choir_pipeline_plan *plan);

/* --- simulate.c --- */

static inline int choir__pipeline_plan_device(const choir_pipeline_plan *plan, int stage)
{
    return stage % plan->devices;
}

double choir__pipeline_plan_duration(const choir_stage_cost *costs, choir_action action);

/* Simulates the plan with its costs. The caller frees the spans. */
choir_span *choir__pipeline_plan_spans(const choir_pipeline_plan *plan);

/* Checks that the spans are finite and do not end before they start. spans may be NULL. */
choir_status choir__pipeline_plan_spans_check(
    const choir_pipeline_plan *plan, const choir_span *spans);

/* The times at which stages finished micro-batches, (stages, micros) each; below 0: not
 * finished. */
typedef struct choir__pipeline_plan_ends {
    double *forward, *backward; /* backward is the time of the input's gradient if B is split */
} choir__pipeline_plan_ends;

choir__pipeline_plan_ends choir__pipeline_plan_ends_new(const choir_pipeline_plan *plan);
void choir__pipeline_plan_ends_free(choir__pipeline_plan_ends *ends);

/* Returns the time at which an action's dependencies have arrived; below 0: not known yet. */
double choir__pipeline_plan_ready(const choir_pipeline_plan *plan,
    const choir_stage_cost *costs, const choir__pipeline_plan_ends *ends, choir_action action);

/* Notes the end of an action for the actions that depend on it. */
void choir__pipeline_plan_done(const choir_pipeline_plan *plan, choir__pipeline_plan_ends *ends,
    choir_action action, double end);

/* Returns the device with the earliest start, the lowest if several have it. */
int choir__pipeline_plan_first(const double *start, int devices);

/* Merges the devices' orders (devices, each) into one, in which actions start under the plan's
 * costs. Returns the makespan; below 0: the actions depend on each other in a circle. order may
 * be NULL. */
double choir__pipeline_plan_merge(
    const choir_pipeline_plan *plan, const choir_action *actions, choir_action *order);

#endif
