/* Cutting: assigns the ops to stages.
 *
 * A stage is a run of ops in forward order. The caller may name the first op of each stage
 * (by_hand.c). Otherwise the cuts make the slowest stage as fast as possible, by dynamic
 * programming over (op, stage):
 *
 *    best(s, i) = min over j < i of max(best(s - 1, j), cost of ops j to i - 1)
 *
 * An op costs its time forward and backward; a stage also costs the time to copy its operands
 * over. Every stage must have a parameter, since one without parameters is not a layer. It must
 * also fit within its device's limit (stage_bytes.c). */
#include <stdlib.h>

#include "device/device.h"
#include "parallel/pipeline/cut.h"

/* The DP's value of a stage: seconds, or infinite if it does not fit; or, to find the cuts that
 * come nearest, the bytes that are missing. */
static double stage_value(
    const choir__cut_costs *c, int stage, int j, int i, const choir__cut_ops *ops, bool missing)
{
    const double limit = c->rooms[stage].bytes,
                 bytes = limit > 0 ? choir__cut_stage_bytes(c, stage, j, i, ops) : 0,
                 over = bytes > limit ? bytes - limit : 0;
    if (c->sum[i].layers == c->sum[j].layers)
        return 1e300;
    if (missing)
        return over;
    return over > 0 ? 1e300
                    : c->sum[i].seconds - c->sum[j].seconds +
                          (j ? 2 * choir__cut_transfer_seconds(c->pipeline, j) : 0);
}

/* Finds the best value of stages 0 to s of the ops before i, and in *from the op with which
 * stage s begins. before: the values of the stages before s. */
static double find_best(
    const choir__cut_costs *c, int s, int i, const double *before, bool missing, int *from)
{
    choir__cut_ops ops = {0};
    double best = 1e300;
    for (int j = i - 1; j >= s; j--) {
        if (c->rooms[s].bytes > 0) /* without a limit, bytes are not needed */
            choir__cut_add_op(c, &ops, j);
        if (s == 0 && j > 0)
            continue;
        /* Ops further ahead only add to the seconds. */
        if (!missing && c->sum[i].seconds - c->sum[j].seconds >= best)
            break;
        const double others = s ? before[j] : 0, stage = stage_value(c, s, j, i, &ops, missing),
                     slowest = others > stage ? others : stage;
        if (slowest < best) {
            best = slowest;
            *from = j;
        }
    }
    return best;
}

/* Writes the best cuts to p->first; false: no cuts fit. */
static bool find_cuts(choir__pipeline *p, const choir__cut_costs *c, bool missing)
{
    int n = p->ops, stages = p->stages;
    size_t columns = (size_t)n + 1;
    double *best = choir__alloc((size_t)stages * columns * sizeof *best);
    int *from = choir__calloc((size_t)stages * columns, sizeof *from);
    for (int s = 0; s < stages; s++)
        for (int i = 0; i <= n; i++) {
            const size_t at = (size_t)s * columns + (size_t)i;
            best[at] = find_best(
                c, s, i, s ? best + ((size_t)s - 1) * columns : NULL, missing, &from[at]);
        }
    bool found = best[(size_t)(stages - 1) * columns + (size_t)n] < 1e299;
    for (int s = stages - 1, i = n; found && s > 0; s--)
        p->first[s] = i = from[(size_t)s * columns + (size_t)i];
    free(best);
    free(from);
    return found;
}

static void predict(choir__pipeline *p, const choir__cut_costs *c)
{
    for (int s = 0; s < p->stages; s++) {
        choir__cut_ops ops = {0};
        for (int j = p->first[s + 1] - 1; j >= p->first[s]; j--)
            choir__cut_add_op(c, &ops, j);
        p->bytes[s] = choir__cut_stage_bytes(c, s, p->first[s], p->first[s + 1], &ops);
    }
}

/* Names the stage that lacks most bytes, for the cuts with which it lacks least. */
static choir_status no_cuts_fit(choir__pipeline *p, const choir__cut_costs *c)
{
    int worst = 0;
    double most = 0;
    find_cuts(p, c, true);
    predict(p, c);
    for (int s = 0; s < p->stages; s++) {
        double limit = c->rooms[s].bytes, missing = limit > 0 ? p->bytes[s] - limit : 0;
        worst = missing > most ? s : worst;
        most = missing > most ? missing : most;
    }
    return choir__error(CHOIR_ERR_MEMORY,
        "pipeline: no cuts fit the limits of %d devices: at best, stage %d on %s, which begins in "
        "'%s', needs %.1f MiB, and %.1f MiB are missing; more devices, a smaller batch, more "
        "micro-batches or recomputation would help",
        p->device_count, worst, choir_device_name(choir__stage_device(p, worst)),
        p->paths[p->first[worst]], p->bytes[worst] / 1048576, most / 1048576);
}

static choir_status cut_by_cost(choir__pipeline *p, const choir__cut_costs *c)
{
    int most = 0; /* number of ops with parameters; each could be a stage */
    for (int i = 0; i < p->ops; i++)
        most += c->sum[i + 1].layers > c->sum[i].layers;
    if (p->stages > most)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: %d stages for a model of %d layers; each stage needs one: take fewer "
            "devices or chunks",
            p->stages, most);
    return find_cuts(p, c, false) ? CHOIR_OK : no_cuts_fit(p, c);
}

static void sum_stages(choir__pipeline *p)
{
    for (int s = 0; s < p->stages; s++) {
        choir_stage_cost *c = &p->stage_costs[s];
        *c = (choir_stage_cost){0};
        for (int i = p->first[s]; i < p->first[s + 1]; i++) {
            c->forward += p->costs[i].forward;
            c->backward_input += p->costs[i].input;
            c->backward_weight += p->costs[i].weight;
        }
        c->backward = c->backward_input + c->backward_weight;
        if (s + 1 < p->stages)
            c->transfer = choir__cut_transfer_seconds(p, p->first[s + 1]);
    }
}

choir_status choir__pipeline_cut(choir__pipeline *p, int64_t micros)
{
    choir__cut_costs costs;
    p->first[0] = 0;
    p->first[p->stages] = p->ops;
    choir_status status = choir__cut_costs_open(&costs, p, micros);
    if (status == CHOIR_OK)
        status = p->cut_names ? choir__pipeline_cut_by_hand(p) : cut_by_cost(p, &costs);
    if (status == CHOIR_OK) {
        predict(p, &costs);
        sum_stages(p);
    }
    choir__cut_costs_close(&costs);
    return status;
}
