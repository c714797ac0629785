/* Cutting: which ops belong to which stage.
 *
 * A stage is a run of ops in forward order. By hand, its first op is named; else the cuts are
 * those that make the slowest stage as fast as possible, by dynamic programming over (op,
 * stage):
 *
 *   best(s, i) = min over j < i of max(best(s - 1, j), cost of ops j to i - 1)
 *
 * where an op costs what it took forward and backward, and a stage also what it takes to bring
 * its operands over. Every stage must have a parameter: one without is no layer. */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"

static const double COPY_RATE = 6e9; /* bytes a second from one device's memory to another's */

static double op_seconds(const choir__pipeline *p, int op)
{
    const choir__op_cost *c = &p->costs[op];
    return c->forward + c->input + c->weight;
}

static double transfer_seconds(const choir__pipeline *p, int op)
{
    return p->crossing[op] / COPY_RATE;
}

static bool has_param(const choir__pipeline *p, int from, int to)
{
    for (int u = 0; u < p->use_count; u++)
        if (p->uses[u].tensor->param && p->uses[u].op >= from && p->uses[u].op < to)
            return true;
    return false;
}

/* --- by hand --- */

static bool inside(const char *path, const char *name, size_t length)
{
    return !strncmp(path, name, length) && (path[length] == '\0' || path[length] == '.');
}

/* The op that "layer2.0+3" or "170" names; -1: none. */
static int named_op(const choir__pipeline *p, const char *name)
{
    char *end;
    long number = strtol(name, &end, 10);
    const char *plus = strchr(name, '+');
    if (end != name && *end == '\0')
        return number < p->ops ? (int)number : -1;
    size_t length = plus ? (size_t)(plus - name) : strlen(name);
    long later = plus ? strtol(plus + 1, &end, 10) : 0;
    if (plus && (end == plus + 1 || *end != '\0' || later < 0))
        return -1;
    for (int i = 0; i < p->ops; i++)
        if (inside(p->paths[i], name, length))
            return i + later < p->ops ? (int)(i + later) : -1;
    return -1;
}

static choir_status cut_by_hand(choir__pipeline *p)
{
    for (int s = 1; s < p->stages; s++) {
        const char *name = p->cut_names[s - 1];
        p->first[s] = named_op(p, name);
        if (p->first[s] < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d is to begin at '%s', and the forward pass has no such op; "
                "it is a module's path, maybe with '+' and a number of ops, or a number below %d",
                s, name, p->ops);
        if (p->first[s] <= p->first[s - 1])
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d is to begin at '%s', op %d, where stage %d begins at op %d",
                s, name, p->first[s], s - 1, p->first[s - 1]);
    }
    for (int s = 0; s < p->stages; s++)
        if (!has_param(p, p->first[s], p->first[s + 1]))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d, ops %d to %d, has no parameters: give it a layer, or let "
                "the cuts be found",
                s, p->first[s], p->first[s + 1] - 1);
    return CHOIR_OK;
}

/* --- by cost --- */

/* sum[i]: seconds of the ops before i; layers[i]: uses of parameters before i. */
static void sums(const choir__pipeline *p, double *sum, int *layers)
{
    memset(layers, 0, (size_t)(p->ops + 1) * sizeof *layers);
    sum[0] = 0;
    for (int u = 0; u < p->use_count; u++)
        layers[p->uses[u].op + 1] += p->uses[u].tensor->param != NULL;
    for (int i = 0; i < p->ops; i++) {
        sum[i + 1] = sum[i] + op_seconds(p, i);
        layers[i + 1] += layers[i];
    }
}

static choir_status cut_by_cost(choir__pipeline *p)
{
    int n = p->ops, stages = p->stages;
    size_t columns = (size_t)n + 1;
    double *sum = choir__calloc(columns, sizeof *sum);
    int *layers = choir__calloc(columns, sizeof *layers);
    double *best = choir__alloc((size_t)stages * columns * sizeof *best);
    int *from = choir__calloc((size_t)stages * columns, sizeof *from);
    sums(p, sum, layers);
    for (int s = 0; s < stages; s++)
        for (int i = 0; i <= n; i++) {
            double *b = &best[(size_t)s * columns + (size_t)i];
            *b = s == 0 && layers[i] > 0 ? sum[i] : 1e300;
            for (int j = s; s > 0 && j < i; j++) {
                double before = best[(size_t)(s - 1) * columns + (size_t)j];
                double stage = sum[i] - sum[j] + 2 * transfer_seconds(p, j);
                double slowest = before > stage ? before : stage;
                if (layers[i] > layers[j] && slowest < *b) {
                    *b = slowest;
                    from[(size_t)s * columns + (size_t)i] = j;
                }
            }
        }
    bool fits = best[(size_t)(stages - 1) * columns + (size_t)n] < 1e299;
    for (int s = stages - 1, i = n; fits && s > 0; s--)
        p->first[s] = i = from[(size_t)s * columns + (size_t)i];
    int most = 0; /* uses of parameters, each of which could be a stage */
    for (int i = 0; i < n; i++)
        most += layers[i + 1] > layers[i];
    free(sum);
    free(layers);
    free(best);
    free(from);
    return fits ? CHOIR_OK
                : choir__error(CHOIR_ERR_ARGUMENT,
                      "pipeline: %d stages for a model of %d layers; each stage needs one",
                      stages, most);
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
            c->transfer = transfer_seconds(p, p->first[s + 1]);
    }
}

choir_status choir__pipeline_cut(choir__pipeline *p)
{
    p->first[0] = 0;
    p->first[p->stages] = p->ops;
    choir_status status = p->cut_names ? cut_by_hand(p) : cut_by_cost(p);
    if (status == CHOIR_OK)
        sum_stages(p);
    return status;
}
