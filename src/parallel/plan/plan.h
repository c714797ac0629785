/* Pipeline plans inside: what a schedule gives, and how its files share the work.
 *
 *   plan.c           the registry of schedules; a plan's life
 *   plan_orders.c    each device's order, by rank arithmetic
 *   plan_search.c    zero-bubble for measured costs: an order by search
 *   plan_simulate.c  times: what waits for what; formulas
 *   plan_print.c, plan_svg.c  pictures
 */
#ifndef CHOIR_PARALLEL_PLAN_H
#define CHOIR_PARALLEL_PLAN_H

#include <choir/pipeline_plan.h>

#include <stdbool.h>

typedef struct choir__pipeline_schedule {
    const char *name;
    bool chunked, split; /* several chunks a device; B is split from W */
    const char *bubble;  /* the formula in words */
    /* Writes all of a device's actions: chunks * microbatches * (split ? 3 : 2). */
    void (*write)(const choir_pipeline_plan *plan, int device, choir_action *actions);
} choir__pipeline_schedule;

struct choir_pipeline_plan {
    const choir__pipeline_schedule *schedule;
    int devices, chunks, stages;
    int64_t micros;
    int each;               /* actions a device */
    choir_stage_cost *cost; /* (stages) */
    choir_action *actions;  /* (devices, each) */
    choir_action *order;    /* (devices * each) */
};

/* --- plan.c --- */

choir_status choir__plan_costs_check(const choir_stage_cost *costs, int stages);

/* --- plan_orders.c --- */

void choir__plan_sequential(const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__plan_gpipe(const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__plan_1f1b(const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__plan_interleaved(
    const choir_pipeline_plan *plan, int device, choir_action *actions);
void choir__plan_zero_bubble(
    const choir_pipeline_plan *plan, int device, choir_action *actions);

/* 1f1b with each W behind its B: what zero-bubble must never be worse than. */
void choir__plan_split_1f1b(const choir_pipeline_plan *plan, int device, choir_action *actions);

/* --- plan_search.c --- */

/* Replaces a zero-bubble plan's orders by better ones for its costs, if any are found. */
void choir__plan_search(choir_pipeline_plan *plan);

/* --- plan_simulate.c --- */

static inline int choir__plan_device(const choir_pipeline_plan *plan, int stage)
{
    return stage % plan->devices;
}

double choir__plan_duration(const choir_stage_cost *costs, choir_action action);

/* Simulated with the plan's costs; the caller frees them. */
choir_span *choir__plan_spans(const choir_pipeline_plan *plan);

/* NULL is fine. */
choir_status choir__plan_spans_check(const choir_pipeline_plan *plan, const choir_span *spans);

/* When stages finished micro-batches: (stages, micros) each; below 0: not yet. */
typedef struct choir__plan_ends {
    double *forward, *backward; /* backward: of the input's part where it is split */
} choir__plan_ends;

choir__plan_ends choir__plan_ends_new(const choir_pipeline_plan *plan);
void choir__plan_ends_free(choir__plan_ends *ends);

/* When what an action waits for is there; below 0: not known yet. */
double choir__plan_ready(const choir_pipeline_plan *plan, const choir_stage_cost *costs,
    const choir__plan_ends *ends, choir_action action);

/* Notes an action's end for those that wait for it. */
void choir__plan_done(
    const choir_pipeline_plan *plan, choir__plan_ends *ends, choir_action action, double end);

/* The device with the least start, the lowest of them. */
int choir__plan_first(const double *start, int devices);

/* Merges the devices' orders (devices, each) into one, as they start under the plan's costs.
 * The makespan; below 0: they wait for each other in a circle. order may be NULL. */
double choir__plan_merge(
    const choir_pipeline_plan *plan, const choir_action *actions, choir_action *order);

#endif
