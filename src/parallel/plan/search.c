/* Zero-bubble for real costs: stages of unequal length, W shorter or longer than B.
 *
 * A list scheduler: the device that can continue first takes B if it is ready, else F if its
 * memory allows, otherwise a weight-gradient step (W), which no other action depends on. It
 * decides greedily, so no single rule is best for all costs: several rules are tried besides
 * the orders of ZB-H1 and 1f1b, and the shortest order is kept. It is never longer than either,
 * and never holds more than 1f1b's peak of p micro-batches.
 *
 * The order is fixed before anything runs, and no rule changes the order within a stage's F, B
 * or W. So badly measured costs cost time but change no bit. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "parallel/plan/pipeline_plan.h"

enum {
    EAGER = 8,           /* about this many values of `eager` are tried */
    MOST_WORK = 1 << 15, /* actions; larger plans use ZB-H1 or 1f1b */
};

typedef struct rule {
    bool forward_first; /* runs F first if F and B are ready at the same time */
    int eager;          /* device d runs at most p - d + eager forwards ahead of B */
    double patience;    /* runs no W if F or B becomes ready within this part of its duration */
} rule;

typedef struct device_state {
    int64_t forward, backward, weight; /* the micro-batch of the next action of each kind */
    double free_at;
} device_state;

typedef struct search {
    choir_pipeline_plan *plan;
    choir_action *actions; /* (devices, each), while they are written */
    choir__pipeline_plan_ends ends;
    device_state *devices;
    double *start;      /* earliest start of each device's next action, as far as it is known */
    choir_action *next; /* these actions */
    rule rule;
} search;

static double when(const search *s, int device, choir_action_kind kind, int64_t micro)
{
    double ready = choir__pipeline_plan_ready(
        s->plan, s->plan->cost, &s->ends, (choir_action){kind, device, micro});
    return ready < 0 ? INFINITY : fmax(ready, s->devices[device].free_at);
}

static void look(search *s, int device)
{
    const choir_pipeline_plan *plan = s->plan;
    const device_state *d = &s->devices[device];
    const int64_t m = plan->micros, ahead = plan->devices - device + s->rule.eager;
    double forward = INFINITY, backward = INFINITY;
    if (d->forward < m && d->forward - d->weight < plan->devices &&
        d->forward - d->backward < ahead)
        forward = when(s, device, CHOIR_FORWARD, d->forward);
    if (d->backward < m)
        backward = when(s, device, CHOIR_BACKWARD_INPUT, d->backward);
    const double patience = s->rule.patience * plan->cost[device].backward_weight;
    if (d->weight < d->backward && fmin(forward, backward) > d->free_at + patience) {
        s->next[device] = (choir_action){CHOIR_BACKWARD_WEIGHT, device, d->weight};
        s->start[device] = d->free_at;
        return;
    }
    bool takes_forward = s->rule.forward_first ? forward <= backward : forward < backward;
    s->next[device] = takes_forward ? (choir_action){CHOIR_FORWARD, device, d->forward}
                                    : (choir_action){CHOIR_BACKWARD_INPUT, device, d->backward};
    s->start[device] = fmin(forward, backward);
}

static void take(search *s, int device)
{
    device_state *d = &s->devices[device];
    const choir_action action = s->next[device];
    const int64_t done = d->forward + d->backward + d->weight;
    s->actions[(int64_t)device * s->plan->each + done] = action;
    d->forward += action.kind == CHOIR_FORWARD;
    d->backward += action.kind == CHOIR_BACKWARD_INPUT;
    d->weight += action.kind == CHOIR_BACKWARD_WEIGHT;
    d->free_at = s->start[device] + choir__pipeline_plan_duration(s->plan->cost, action);
    choir__pipeline_plan_done(s->plan, &s->ends, action, d->free_at);
}

/* Writes all devices' orders by a rule; returns the makespan. */
static double write(search *s, rule by)
{
    const int p = s->plan->devices;
    double makespan = 0;
    s->rule = by;
    s->ends = choir__pipeline_plan_ends_new(s->plan);
    memset(s->devices, 0, (size_t)p * sizeof *s->devices);
    for (int d = 0; d < p; d++)
        look(s, d);
    for (int done = 0; done < p * s->plan->each; done++) {
        const int d = choir__pipeline_plan_first(s->start, p);
        take(s, d);
        makespan = fmax(makespan, s->devices[d].free_at);
        look(s, d);
        look(s, (d + 1) % p);
        look(s, (d + p - 1) % p);
    }
    choir__pipeline_plan_ends_free(&s->ends);
    return makespan;
}

/* Keeps the actions of `from` if their makespan is less than `best`; returns the lesser one. */
static double keep_better(
    choir_pipeline_plan *plan, const choir_action *from, double makespan, double best)
{
    if (!(makespan < best))
        return best;
    memcpy(plan->actions, from,
        (size_t)plan->devices * (size_t)plan->each * sizeof *plan->actions);
    return makespan;
}

void choir__pipeline_plan_search(choir_pipeline_plan *plan)
{
    static const double patience[] = {0, 0.25, 0.5, 0.75, 1, 1.5};
    const int p = plan->devices, step = (int)choir__max(1, p / EAGER);
    double best = choir__pipeline_plan_merge(plan, plan->actions, NULL);
    search s = {.plan = plan};
    s.actions = choir__alloc((size_t)p * (size_t)plan->each * sizeof *s.actions);
    s.devices = choir__alloc((size_t)p * sizeof *s.devices);
    s.start = choir__alloc((size_t)p * sizeof *s.start);
    s.next = choir__alloc((size_t)p * sizeof *s.next);
    for (int d = 0; d < p; d++)
        choir__pipeline_plan_split_1f1b(plan, d, &s.actions[(size_t)d * (size_t)plan->each]);
    best =
        keep_better(plan, s.actions, choir__pipeline_plan_merge(plan, s.actions, NULL), best);
    const bool small = p * plan->each <= MOST_WORK;
    for (int eager = 0; small && eager < p; eager += step)
        for (int i = 0; i < 2 * (int)CHOIR_COUNT(patience); i++) {
            double makespan = write(&s, (rule){i & 1, eager, patience[i >> 1]});
            best = keep_better(plan, s.actions, makespan, best);
        }
    free(s.actions);
    free(s.devices);
    free(s.start);
    free(s.next);
}
