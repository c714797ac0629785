/* Pipeline plans: which device does what in which order, before anything runs.
 *
 * A model is cut into stages; device d of p runs the stages d, d + p, d + 2p, ... (as many as
 * there are chunks), and micro-batches go through the stages forward (F) and back (B). B may be
 * split: into the gradient of a stage's input, which the stage before waits for, and that of
 * its weights (W), which nobody waits for. The schedules:
 *
 *   sequential   one micro-batch after another: model parallel
 *   gpipe        all forwards, then all backwards
 *   1f1b         each device goes back as soon as it can: at most p micro-batches at a time
 *   interleaved  1f1b of several chunks a device, so that the pipeline fills sooner
 *   zero-bubble  backward split, W where a device would be idle (ZB-H1); with costs given, the
 *                best that is found for these in the same memory
 *
 * Under all of them a stage takes micro-batches in ascending order, in F, in B and in W: hence
 * none of them changes a bit. Plans are arithmetic: to run by, to print, to draw, and to tell
 * how long a step takes.
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
    CHOIR_BACKWARD, /* all of it */
    CHOIR_BACKWARD_INPUT,
    CHOIR_BACKWARD_WEIGHT,
} choir_action_kind;

typedef struct choir_action {
    choir_action_kind kind;
    int stage; /* on device stage % devices */
    int64_t micro;
} choir_action;

/** What a stage takes for one micro-batch, in seconds or any other unit. */
typedef struct choir_stage_cost {
    double forward;
    double backward;                        /* where it is not split */
    double backward_input, backward_weight; /* where it is */
    double transfer; /* from this stage's end to the next one's begin, and back; both may work
                        meanwhile; none between stages on the same device */
} choir_stage_cost;

/** When an action runs: from its step's begin, in the costs' unit. */
typedef struct choir_span {
    double start, end;
} choir_span;

typedef struct choir_pipeline_plan choir_pipeline_plan;

/** The schedules' names, from 0 on; NULL behind the last. */
const char *choir_pipeline_schedule_name(int index);

/**
 * @param schedule      a name as above
 * @param devices       p, at least 1
 * @param chunks        stages a device: 1 for gpipe, 1f1b and zero-bubble
 * @param microbatches  m, at least 1; any number, whatever p is
 * @param costs         (devices * chunks), copied. NULL: equal stages, in units of a device's
 *                      forward: F and W 1 / chunks, B 2 / chunks, its part for the input half
 *                      of that, no transfers
 *
 * The caller frees the plan. Errors: argument.
 */
choir_status choir_pipeline_plan_new(const char *schedule, int devices, int chunks,
    int64_t microbatches, const choir_stage_cost *costs, choir_pipeline_plan **plan);
void choir_pipeline_plan_free(choir_pipeline_plan *plan); /* NULL is fine */

const char *choir_pipeline_plan_schedule(const choir_pipeline_plan *plan);
int choir_pipeline_plan_devices(const choir_pipeline_plan *plan);
int choir_pipeline_plan_chunks(const choir_pipeline_plan *plan);
int64_t choir_pipeline_plan_microbatches(const choir_pipeline_plan *plan);

/** What a device does, in order, count of them; the plan owns them. */
const choir_action *choir_pipeline_plan_actions(
    const choir_pipeline_plan *plan, int device, int *count);

/** All actions, as they start: each behind all that it waits for, those of a device in its own
 * order. What a single thread issues. The plan owns them. */
const choir_action *choir_pipeline_plan_order(const choir_pipeline_plan *plan, int *count);

/** The most activations that a device holds at a time: of a micro-batch in a stage, from its F
 * to the end of its B, or W. */
int64_t choir_pipeline_plan_peak(const choir_pipeline_plan *plan, int device);

/**
 * When each action runs if every device takes its own in order, each as soon as it can.
 *
 * @param costs  (devices * chunks); NULL: the plan's
 * @param spans  one an action of choir_pipeline_plan_order, in that order; the caller's
 *
 * Errors: argument.
 */
choir_status choir_pipeline_plan_simulate(
    const choir_pipeline_plan *plan, const choir_stage_cost *costs, choir_span *spans);

/* Of spans in the plan's order: simulated, or measured. NULL: simulated with the plan's costs.
 */

/** From the first start to the last end. */
double choir_pipeline_plan_makespan(const choir_pipeline_plan *plan, const choir_span *spans);

/** The share of the makespan in which a device is idle; device -1: the mean of all. */
double choir_pipeline_plan_idle(
    const choir_pipeline_plan *plan, const choir_span *spans, int device);

/**
 * That share by the schedule's formula, for equal stages (F, B, W: means of the plan's costs),
 * at least p micro-batches and no transfers: bubble / (1 + bubble), where a step takes
 * 1 + bubble times as long as a device works.
 *
 *   sequential   p - 1
 *   gpipe, 1f1b  (p - 1) / m               GPipe (2018), PipeDream (2019)
 *   interleaved  (p - 1) / (v m)           Megatron-LM (2021); exact where p divides m
 *   zero-bubble  (p - 1) max(F + B - W, F, B) / (m (F + B + W))      B: of the input alone
 *
 * The last is ZB-H1's (2023), F + B - W, where W is no longer than F and than B; a longer W
 * fills no more than it finds.
 */
double choir_pipeline_plan_idle_formula(const choir_pipeline_plan *plan);

/** A row a device: "F3 B1-- .", to scale, in at most 100 columns (longer ones are cut into
 * pieces below each other), the idle shares and what is held. Errors: I/O, argument. */
choir_status choir_pipeline_plan_print(
    const choir_pipeline_plan *plan, const choir_span *spans, FILE *file);

/**
 * A picture (SVG) of plans below each other, to one scale.
 *
 * @param spans  (count), each as above; NULL: all simulated
 * @param unit   of time, as "s" or "ms"; NULL: none
 *
 * Errors: I/O, argument.
 */
choir_status choir_pipeline_plan_svg(const choir_pipeline_plan *const *plans,
    const choir_span *const *spans, int count, const char *unit, const char *path);

#ifdef __cplusplus
}
#endif
#endif
