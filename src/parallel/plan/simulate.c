/* Computes when actions run if each device takes its own in order, each as soon as it can.
 *
 *    F(s, i)  waits for F(s - 1, i)                    B(s, i)  for F(s, i) and B(s + 1, i)
 *    W(s, i)  for B(s, i)
 *
 * A transfer between devices takes some time, during which both can work. All functions of
 * times, simulated or measured, use spans in the plan's order. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "parallel/plan/pipeline_plan.h"

double choir__pipeline_plan_duration(const choir_stage_cost *costs, choir_action action)
{
    const choir_stage_cost *c = &costs[action.stage];
    switch (action.kind) {
    case CHOIR_FORWARD: return c->forward;
    case CHOIR_BACKWARD: return c->backward;
    case CHOIR_BACKWARD_INPUT: return c->backward_input;
    case CHOIR_BACKWARD_WEIGHT: break;
    }
    return c->backward_weight;
}

choir__pipeline_plan_ends choir__pipeline_plan_ends_new(const choir_pipeline_plan *plan)
{
    const size_t n = (size_t)plan->stages * (size_t)plan->micros;
    choir__pipeline_plan_ends ends = {
        choir__alloc(n * sizeof(double)), choir__alloc(n * sizeof(double))};
    for (size_t i = 0; i < n; i++)
        ends.forward[i] = ends.backward[i] = -1;
    return ends;
}

void choir__pipeline_plan_ends_free(choir__pipeline_plan_ends *ends)
{
    free(ends->forward);
    free(ends->backward);
}

/* Returns when a result that was complete at `end` arrives in the neighbouring stage; `lower`
 * is the lower stage of the two. */
static double arrival(
    const choir_pipeline_plan *plan, const choir_stage_cost *costs, double end, int lower)
{
    return end < 0 || plan->devices == 1 ? end : end + costs[lower].transfer;
}

double choir__pipeline_plan_ready(const choir_pipeline_plan *plan,
    const choir_stage_cost *costs, const choir__pipeline_plan_ends *ends, choir_action action)
{
    const int64_t m = plan->micros;
    const int s = action.stage;
    const double *forward = &ends->forward[s * m + action.micro];
    const double *backward = &ends->backward[s * m + action.micro];
    if (action.kind == CHOIR_FORWARD)
        return s == 0 ? 0 : arrival(plan, costs, forward[-m], s - 1);
    if (action.kind == CHOIR_BACKWARD_WEIGHT)
        return *backward;
    if (s == plan->stages - 1 || *forward < 0)
        return *forward;
    double there = arrival(plan, costs, backward[m], s);
    return there < 0 ? there : fmax(there, *forward);
}

void choir__pipeline_plan_done(const choir_pipeline_plan *plan, choir__pipeline_plan_ends *ends,
    choir_action action, double end)
{
    const int64_t at = action.stage * plan->micros + action.micro;
    if (action.kind == CHOIR_FORWARD)
        ends->forward[at] = end;
    else if (action.kind != CHOIR_BACKWARD_WEIGHT)
        ends->backward[at] = end;
}

/* A merge in progress. start: when each device's next action can begin, as far as it is
 * known. */
typedef struct merge {
    const choir_pipeline_plan *plan;
    const choir_action *actions;
    choir__pipeline_plan_ends ends;
    int *next;
    double *start, *free_at;
} merge;

static void look(merge *m, int device)
{
    const choir_pipeline_plan *plan = m->plan;
    m->start[device] = INFINITY;
    if (m->next[device] == plan->each)
        return;
    const choir_action next = m->actions[device * plan->each + m->next[device]];
    const double ready = choir__pipeline_plan_ready(plan, plan->cost, &m->ends, next);
    if (ready >= 0)
        m->start[device] = fmax(ready, m->free_at[device]);
}

int choir__pipeline_plan_first(const double *start, int devices)
{
    int first = 0;
    for (int d = 1; d < devices; d++)
        if (start[d] < start[first])
            first = d;
    return first;
}

double choir__pipeline_plan_merge(
    const choir_pipeline_plan *plan, const choir_action *actions, choir_action *order)
{
    const int p = plan->devices, total = p * plan->each;
    merge m = {.plan = plan, .actions = actions, .ends = choir__pipeline_plan_ends_new(plan)};
    m.next = choir__calloc((size_t)p, sizeof *m.next);
    m.start = choir__calloc((size_t)p, sizeof *m.start);
    m.free_at = choir__calloc((size_t)p, sizeof *m.free_at);
    double makespan = 0;
    int done = 0;
    for (int d = 0; d < p; d++)
        look(&m, d);
    for (; done < total; done++) {
        const int d = choir__pipeline_plan_first(m.start, p);
        if (m.start[d] == INFINITY)
            break;
        const choir_action action = actions[d * plan->each + m.next[d]++];
        m.free_at[d] = m.start[d] + choir__pipeline_plan_duration(plan->cost, action);
        makespan = fmax(makespan, m.free_at[d]);
        choir__pipeline_plan_done(plan, &m.ends, action, m.free_at[d]);
        if (order)
            order[done] = action;
        look(&m, d); /* no other devices depended on the action */
        look(&m, (d + 1) % p);
        look(&m, (d + p - 1) % p);
    }
    choir__pipeline_plan_ends_free(&m.ends);
    free(m.next);
    free(m.start);
    free(m.free_at);
    return done == total ? makespan : -1;
}

static void simulate(
    const choir_pipeline_plan *plan, const choir_stage_cost *costs, choir_span *spans)
{
    choir__pipeline_plan_ends ends = choir__pipeline_plan_ends_new(plan);
    double *free_at = choir__calloc((size_t)plan->devices, sizeof *free_at);
    for (int i = 0; i < plan->devices * plan->each; i++) {
        const choir_action action = plan->order[i];
        double *at = &free_at[choir__pipeline_plan_device(plan, action.stage)];
        spans[i].start = fmax(choir__pipeline_plan_ready(plan, costs, &ends, action), *at);
        spans[i].end = *at = spans[i].start + choir__pipeline_plan_duration(costs, action);
        choir__pipeline_plan_done(plan, &ends, action, *at);
    }
    choir__pipeline_plan_ends_free(&ends);
    free(free_at);
}

choir_status choir_pipeline_plan_simulate(
    const choir_pipeline_plan *plan, const choir_stage_cost *costs, choir_span *spans)
{
    if (!plan)
        return choir__missing(__func__, "pipeline plan");
    if (!spans)
        return choir__missing(__func__, "span");
    choir_status status =
        costs ? choir__pipeline_plan_costs_check(costs, plan->stages) : CHOIR_OK;
    if (status == CHOIR_OK)
        simulate(plan, costs ? costs : plan->cost, spans);
    return status;
}

choir_span *choir__pipeline_plan_spans(const choir_pipeline_plan *plan)
{
    choir_span *spans = choir__alloc((size_t)(plan->devices * plan->each) * sizeof *spans);
    simulate(plan, plan->cost, spans);
    return spans;
}

/* --- results from the spans --- */

choir_status choir__pipeline_plan_spans_check(
    const choir_pipeline_plan *plan, const choir_span *spans)
{
    if (!plan)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "missing plan: a pipeline on several devices has one from its third step on");
    for (int i = 0; spans && i < plan->devices * plan->each; i++)
        if (!(spans[i].start <= spans[i].end && isfinite(spans[i].start) &&
                isfinite(spans[i].end)))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "action %d of the plan's order: expected a start and a later end, got %g "
                "and %g",
                i, spans[i].start, spans[i].end);
    return CHOIR_OK;
}

/* device -1: the sum over all devices. */
static double busy_of(const choir_pipeline_plan *plan, const choir_span *spans, int device)
{
    double busy = 0;
    for (int i = 0; i < plan->devices * plan->each; i++)
        if (device < 0 || choir__pipeline_plan_device(plan, plan->order[i].stage) == device)
            busy += spans[i].end - spans[i].start;
    return busy;
}

static double makespan_of(const choir_pipeline_plan *plan, const choir_span *spans)
{
    double first = INFINITY, last = -INFINITY;
    for (int i = 0; i < plan->devices * plan->each; i++) {
        first = fmin(first, spans[i].start);
        last = fmax(last, spans[i].end);
    }
    return last - first;
}

double choir_pipeline_plan_makespan(const choir_pipeline_plan *plan, const choir_span *spans)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NAN;
    choir_span *own = spans ? NULL : choir__pipeline_plan_spans(plan);
    double makespan = makespan_of(plan, spans ? spans : own);
    free(own);
    return makespan;
}

double choir_pipeline_plan_idle(
    const choir_pipeline_plan *plan, const choir_span *spans, int device)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NAN;
    choir_span *own = spans ? NULL : choir__pipeline_plan_spans(plan);
    const choir_span *of = spans ? spans : own;
    double time = makespan_of(plan, of) * (device < 0 ? plan->devices : 1);
    double idle = time > 0 ? 1 - busy_of(plan, of, device) / time : 0;
    free(own);
    return fmax(idle, 0); /* removes rounding below 0 */
}

double choir_pipeline_plan_idle_formula(const choir_pipeline_plan *plan)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return NAN;
    const double p = plan->devices, m = (double)plan->micros, v = plan->chunks;
    double bubble = (p - 1) / (plan->schedule->chunked ? v * m : m);
    if (plan->schedule->write == choir__pipeline_plan_sequential)
        bubble = p - 1;
    if (plan->schedule->split) {
        /* sums over stages; their quotient equals the means' quotient */
        double f = 0, b = 0, w = 0;
        for (int s = 0; s < plan->stages; s++) {
            f += plan->cost[s].forward;
            b += plan->cost[s].backward_input;
            w += plan->cost[s].backward_weight;
        }
        double left = fmax(f + b - w, fmax(f, b)); /* idle time that no W fills */
        bubble = f + b + w > 0 ? (p - 1) * left / (m * (f + b + w)) : 0;
    }
    return bubble / (1 + bubble);
}

int64_t choir_pipeline_plan_peak(const choir_pipeline_plan *plan, int device)
{
    if (choir__lacks(plan, __func__, "pipeline plan"))
        return 0;
    const choir_action *actions = &plan->actions[(int64_t)device * plan->each];
    int64_t held = 0, peak = 0;
    for (int i = 0; i < plan->each; i++) {
        held += actions[i].kind == CHOIR_FORWARD;
        peak = choir__max(peak, held);
        held -= actions[i].kind == CHOIR_BACKWARD || actions[i].kind == CHOIR_BACKWARD_WEIGHT;
    }
    return peak;
}

choir_status choir__pipeline_plan_costs_check(const choir_stage_cost *costs, int stages)
{
    for (int s = 0; s < stages; s++) {
        const struct {
            const char *name;
            double value;
        } parts[] = {{"forward", costs[s].forward}, {"backward", costs[s].backward},
            {"backward_input", costs[s].backward_input},
            {"backward_weight", costs[s].backward_weight}, {"transfer", costs[s].transfer}};
        for (size_t i = 0; i < CHOIR_COUNT(parts); i++)
            if (!(parts[i].value >= 0 && isfinite(parts[i].value)))
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "the cost of stage %d: expected a %s of at least 0, got %g", s,
                    parts[i].name, parts[i].value);
    }
    return CHOIR_OK;
}
