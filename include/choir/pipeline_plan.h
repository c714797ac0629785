/* Pipeline plans: the order in which each device takes its work, computed before anything
 * runs.
 *
 * A model is cut into stages; device d of p runs the stages d, d + p, d + 2p, ... (one per
 * chunk), and micro-batches go through the stages forward (F) and backward (B). B may be split
 * into the gradient of a stage's input, for which the previous stage waits, and the gradient of
 * its weights (W), for which no other action waits. The schedules:
 *
 *   sequential   one micro-batch after another: model parallel
 *   gpipe        all forwards, then all backwards
 *   1f1b         backward as early as possible: at most p micro-batches at a time per device
 *   interleaved  1f1b with several chunks per device, so that the pipeline fills sooner
 *   zero-bubble  backward split, W where a device would be idle (ZB-H1); with given costs, the
 *                best plan found for them in the same memory
 *
 * Under all schedules a stage takes micro-batches in ascending order, in F, in B and in W, so
 * a schedule changes no bit. Plans are arithmetic: they serve to run, to print, to draw, and
 * to predict the duration of a step.
 *
 * Threads: any, as a plan never changes. Collective: no. */
#ifndef CHOIR_PIPELINE_PLAN_H
#define CHOIR_PIPELINE_PLAN_H

#include <stdint.h>
#include <stdio.h>
#include <choir/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum choir_action_kind {
    CHOIR_FORWARD,
    CHOIR_BACKWARD, /* the whole backward */
    CHOIR_BACKWARD_INPUT,
    CHOIR_BACKWARD_WEIGHT,
} choir_action_kind;

typedef struct choir_action {
    choir_action_kind kind;
    int stage; /* runs on device stage % devices */
    int64_t micro;
} choir_action;

/** The time of a stage for one micro-batch, in seconds or any other unit. */
typedef struct choir_stage_cost {
    double forward;
    double backward;                        /* B as a whole */
    double backward_input, backward_weight; /* B split in two */
    /* time from this stage's end to the next stage's beginning, and back; both stages may work
     * meanwhile; zero between stages on the same device */
    double transfer;
} choir_stage_cost;

/** The time in which an action runs, from the beginning of its step, in the costs' unit. */
typedef struct choir_span {
    double start, end;
} choir_span;

typedef struct choir_pipeline_plan choir_pipeline_plan;

/** Returns the name of schedule `index`, counted from 0; NULL after the last. */
const char *choir_pipeline_schedule_name(int index);

/**
 * Makes a plan, which the caller frees.
 *
 * @param schedule      a name as above
 * @param devices       p, at least 1
 * @param chunks        stages per device: 1 for gpipe, 1f1b and zero-bubble
 * @param microbatches  m, at least 1; any number, for any p
 * @param costs         (devices * chunks), copied. NULL: equal stages, in units of a device's
 *                      forward: F and W 1 / chunks, B 2 / chunks, its part for the input half
 *                      of that, no transfers
 *
 * Errors: argument.
 */
CHOIR_CHECKED choir_status choir_pipeline_plan_new(const char *schedule, int devices,
    int chunks, int64_t microbatches, const choir_stage_cost *costs,
    choir_pipeline_plan **plan);
void choir_pipeline_plan_free(choir_pipeline_plan *plan); /* NULL is fine */

const char *choir_pipeline_plan_schedule(const choir_pipeline_plan *plan);
int choir_pipeline_plan_devices(const choir_pipeline_plan *plan);
int choir_pipeline_plan_chunks(const choir_pipeline_plan *plan);
int64_t choir_pipeline_plan_microbatches(const choir_pipeline_plan *plan);

/** Returns a device's actions, in order, and their number in *count; the plan owns them. */
const choir_action *choir_pipeline_plan_actions(
    const choir_pipeline_plan *plan, int device, int *count);

/** Returns all actions in an order in which a single thread can issue them: each after all
 * actions that it waits for, and each device's actions in the device's own order. The plan owns
 * them. */
const choir_action *choir_pipeline_plan_order(const choir_pipeline_plan *plan, int *count);

/** Returns the maximum number of activations that a device holds at a time. An activation is
 * one micro-batch in one stage, from its F to the end of its B, or W. */
int64_t choir_pipeline_plan_peak(const choir_pipeline_plan *plan, int device);

/**
 * Computes when each action runs if every device takes its own actions in order, each as early
 * as possible.
 *
 * @param costs  (devices * chunks); NULL: the plan's
 * @param spans  the caller's array; receives one span per action, in the order of
 * choir_pipeline_plan_order
 *
 * Errors: argument.
 */
CHOIR_CHECKED choir_status choir_pipeline_plan_simulate(
    const choir_pipeline_plan *plan, const choir_stage_cost *costs, choir_span *spans);

/* The functions below take spans in the plan's order, simulated or measured. NULL: simulated
 * with the plan's costs. */

/** Returns the time from the first start to the last end. */
double choir_pipeline_plan_makespan(const choir_pipeline_plan *plan, const choir_span *spans);

/** Returns the share of the makespan in which a device is idle; device -1: the mean of all. */
double choir_pipeline_plan_idle(
    const choir_pipeline_plan *plan, const choir_span *spans, int device);

/**
 * Returns the idle share by the schedule's formula, bubble / (1 + bubble), for equal stages
 * (F, B, W: means of the plan's costs), at least p micro-batches and no transfers. A step
 * takes 1 + bubble times as long as a device works.
 *
 *   sequential   p - 1
 *   gpipe, 1f1b  (p - 1) / m               GPipe (2018), PipeDream (2019)
 *   interleaved  (p - 1) / (v m)           Megatron-LM (2021); exact where p divides m
 *   zero-bubble  (p - 1) max(F + B - W, F, B) / (m (F + B + W))      B: of the input alone
 *
 * The zero-bubble formula is ZB-H1's (2023) if W is at most F and at most B; a longer W cannot
 * fill more idle time than exists.
 */
double choir_pipeline_plan_idle_formula(const choir_pipeline_plan *plan);

/** Prints one row per device, "F3 B1-- .", to scale, in at most 100 columns (longer rows are
 * cut into pieces below each other), the idle shares and the stored activations. Errors: I/O,
 * argument. */
CHOIR_CHECKED choir_status choir_pipeline_plan_print(
    const choir_pipeline_plan *plan, const choir_span *spans, FILE *file);

/**
 * Draws a picture (SVG) of several plans below each other, at one scale.
 *
 * @param spans  (count) spans of each plan, as above; NULL: all simulated
 * @param unit   unit of time, such as "s" or "ms"; NULL: no unit
 *
 * Errors: I/O, argument.
 */
CHOIR_CHECKED choir_status choir_pipeline_plan_svg(const choir_pipeline_plan *const *plans,
    const choir_span *const *spans, int count, const char *unit, const char *path);

#ifdef __cplusplus
}
#endif
#endif
