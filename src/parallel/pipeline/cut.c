/* Cutting: assigns the ops to stages.
 *
 * A stage is a run of ops in forward order. The caller may name the first op of each stage.
 * Otherwise the cuts make the slowest stage as fast as possible, by dynamic programming over
 * (op, stage):
 *
 *    best(s, i) = min over j < i of max(best(s - 1, j), cost of ops j to i - 1)
 *
 * An op costs its time forward and backward; a stage also costs the time to copy its operands
 * over. Every stage must have a parameter, since one without parameters is not a layer. It must
 * also fit within its device's limit: the bytes that its ops keep for backward, times the
 * micro-batches that the schedule holds at a time, and its parameters with gradients and two
 * moments. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"

/* bytes per second from one device's memory to another's */
static const double COPY_RATE = 6e9;
static const double STEP_TIME = 2e-9; /* seconds per parameter in an optimizer: three passes */

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

/* --- cuts given by the caller --- */

bool choir__pipeline_is_inside(const char *path, const char *name, size_t length)
{
    return !strncmp(path, name, length) && (path[length] == '\0' || path[length] == '.');
}

int choir__pipeline_cut_path(const char *cut, size_t *length)
{
    char *end;
    long number = strtol(cut, &end, 10);
    if (end != cut && *end == '\0')
        return number < 0 ? -2 : -1;
    const char *plus = strchr(cut, '+');
    *length = plus ? (size_t)(plus - cut) : strlen(cut);
    if (!plus)
        return 0;
    number = strtol(plus + 1, &end, 10);
    return end == plus + 1 || *end != '\0' || number < 0 || number > INT_MAX ? -2 : (int)number;
}

struct search {
    const char *name;
    size_t length;
    bool found;
    char choices[200];
};

static void search_in(struct search *s, const choir_module *m)
{
    s->found |= choir__pipeline_is_inside(m->path, s->name, s->length);
    for (const choir__module_entry *e = m->inside->entries; e && !s->found; e = e->next)
        if (e->kind == CHOIR__CHILD)
            search_in(s, e->child);
}

static void add_choice(choir_module *block, void *arg)
{
    struct search *s = arg;
    size_t used = strlen(s->choices);
    if (used + strlen(block->path) + 8 < sizeof s->choices)
        snprintf(s->choices + used, sizeof s->choices - used, "%s%s", used ? ", " : "",
            block->path);
    else if (strcmp(s->choices + used - 3, "..."))
        snprintf(s->choices + used, sizeof s->choices - used, ", ...");
}

choir_status choir__pipeline_check_cuts(const choir__pipeline *p)
{
    for (int s = 1; s < p->stages; s++) {
        struct search search = {.name = p->cut_names[s - 1]};
        int ops = choir__pipeline_cut_path(search.name, &search.length);
        if (ops == -2 || !*search.name)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d: expected the path of a module, maybe with '+' and a number "
                "of ops, or the number of an op, got '%s'",
                s, search.name);
        if (ops >= 0)
            search_in(&search, p->module);
        if (ops < 0 || search.found)
            continue;
        choir__module_blocks(p->module, add_choice, &search);
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: stage %d is to begin at unknown module '%.*s': choose one of %s, or a "
            "module in them",
            s, (int)search.length, search.name, search.choices);
    }
    return CHOIR_OK;
}

/* Returns the op that "layer2.0+3" or "170" names; -1: none. */
static int named_op(const choir__pipeline *p, const char *name)
{
    size_t length;
    int later = choir__pipeline_cut_path(name, &length);
    if (later == -1)
        return strtol(name, NULL, 10) < p->ops ? (int)strtol(name, NULL, 10) : -1;
    for (int i = 0; i < p->ops; i++)
        if (choir__pipeline_is_inside(p->paths[i], name, length))
            return later < p->ops - i ? i + later : -1;
    return -1;
}

static choir_status cut_by_hand(choir__pipeline *p)
{
    for (int s = 1; s < p->stages; s++) {
        const char *name = p->cut_names[s - 1];
        p->first[s] = named_op(p, name);
        if (p->first[s] < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "pipeline: stage %d: expected an op of the forward pass (a module's path, "
                "maybe with '+' and a number of ops, or a number below %d), got '%s'",
                s, p->ops, name);
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

/* --- cuts found by cost --- */

/* Sums over the ops before i: seconds, bytes kept for backward, bytes of parameters first used
 * there, and uses of parameters. */
typedef struct before {
    double seconds, held, params;
    int layers;
} before;

static bool first_use(const choir__pipeline *p, int use)
{
    for (int u = 0; u < use; u++)
        if (p->uses[u].tensor == p->uses[use].tensor)
            return false;
    return true;
}

static before *sums(const choir__pipeline *p, int64_t micros)
{
    before *sum = choir__calloc((size_t)p->ops + 1, sizeof *sum);
    for (int u = 0; u < p->use_count; u++) {
        const choir_tensor *t = p->uses[u].tensor;
        before *s = &sum[p->uses[u].op + 1];
        if (!t->param)
            continue;
        s->layers++;
        if (!first_use(p, u))
            continue;
        s->params += (double)t->count * sizeof(float);
        s->seconds += (double)t->count * STEP_TIME / (double)micros; /* once per step */
    }
    for (int i = 0; i < p->ops; i++) {
        sum[i + 1].seconds += sum[i].seconds + op_seconds(p, i);
        sum[i + 1].held += sum[i].held + p->held[i];
        sum[i + 1].params += sum[i].params;
        sum[i + 1].layers += sum[i].layers;
    }
    return sum;
}

/* The limits of a stage: its part of the device's bytes (0: no limit), and the micro-batches
 * that it holds at a time. */
typedef struct room {
    double bytes, micros;
} room;

static choir_status find_rooms(const choir__pipeline *p, int64_t micros, room *rooms)
{
    choir_pipeline_plan *plan;
    choir_status status =
        choir_pipeline_plan_new(p->schedule, p->device_count, p->chunks, micros, NULL, &plan);
    for (int s = 0; s < p->stages && status == CHOIR_OK; s++) {
        rooms[s].bytes = p->limits[s % p->device_count] / p->chunks;
        rooms[s].micros =
            (double)choir_pipeline_plan_peak(plan, s % p->device_count) / p->chunks;
    }
    if (status == CHOIR_OK)
        choir_pipeline_plan_free(plan);
    return status;
}

static bool fits(const room *r, const before *from, const before *to)
{
    double activations = (to->held - from->held) * r->micros;
    return r->bytes == 0 || activations + 4 * (to->params - from->params) <= r->bytes;
}

/* Writes the best cuts to p->first; false: no cuts fit. */
static bool find_cuts(choir__pipeline *p, const before *sum, const room *rooms)
{
    int n = p->ops, stages = p->stages;
    size_t columns = (size_t)n + 1;
    double *best = choir__alloc((size_t)stages * columns * sizeof *best);
    int *from = choir__calloc((size_t)stages * columns, sizeof *from);
    for (int s = 0; s < stages; s++)
        for (int i = 0; i <= n; i++) {
            double *b = &best[(size_t)s * columns + (size_t)i];
            bool alone = s == 0 && sum[i].layers > 0 && fits(&rooms[0], &sum[0], &sum[i]);
            *b = alone ? sum[i].seconds : 1e300;
            for (int j = s; s > 0 && j < i; j++) {
                double others = best[(size_t)(s - 1) * columns + (size_t)j];
                double stage = sum[i].seconds - sum[j].seconds + 2 * transfer_seconds(p, j);
                double slowest = others > stage ? others : stage;
                if (slowest < *b && sum[i].layers > sum[j].layers &&
                    fits(&rooms[s], &sum[j], &sum[i])) {
                    *b = slowest;
                    from[(size_t)s * columns + (size_t)i] = j;
                }
            }
        }
    bool found = best[(size_t)(stages - 1) * columns + (size_t)n] < 1e299;
    for (int s = stages - 1, i = n; found && s > 0; s--)
        p->first[s] = i = from[(size_t)s * columns + (size_t)i];
    free(best);
    free(from);
    return found;
}

static choir_status cut_by_cost(choir__pipeline *p, int64_t micros)
{
    before *sum = sums(p, micros);
    room *rooms = choir__calloc((size_t)p->stages, sizeof *rooms);
    int most = 0; /* number of ops with parameters, each of which could be a stage */
    for (int i = 0; i < p->ops; i++)
        most += sum[i + 1].layers > sum[i].layers;
    choir_status status = find_rooms(p, micros, rooms);
    if (status == CHOIR_OK && p->stages > most)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: %d stages for a model of %d layers; each stage needs one: take fewer "
            "devices or chunks",
            p->stages, most);
    else if (status == CHOIR_OK && !find_cuts(p, sum, rooms))
        status = choir__error(CHOIR_ERR_MEMORY,
            "pipeline: no cuts fit the limits of %d devices: parameters, gradients and moments "
            "have %.0f MiB, a micro-batch's activations %.0f, and %s holds up to %.0f of them; "
            "more devices, a smaller batch, more micro-batches or recomputation would help",
            p->device_count, 4 * sum[p->ops].params / 1048576, sum[p->ops].held / 1048576,
            p->schedule, rooms[0].micros * p->chunks);
    free(sum);
    free(rooms);
    return status;
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

choir_status choir__pipeline_cut(choir__pipeline *p, int64_t micros)
{
    p->first[0] = 0;
    p->first[p->stages] = p->ops;
    choir_status status = p->cut_names ? cut_by_hand(p) : cut_by_cost(p, micros);
    if (status == CHOIR_OK)
        sum_stages(p);
    return status;
}
