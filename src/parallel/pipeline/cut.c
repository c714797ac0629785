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
 * also fit within its device's limit: the bytes that its ops keep for backward and those that
 * cross its first cut, times the micro-batches that the schedule holds at a time; the gradients
 * that it keeps for as many W; its parameters with the optimizer's state, which the measured
 * steps have made, and the levels of their gradients' tree, or as much of them as a sharder
 * leaves it; the rows that lookups give in a step; and the operands of one op. */
#include <math.h>
#include <stdlib.h>

#include "device/device.h"
#include "parallel/pipeline/pipeline.h"

/* bytes per second from one device's memory to another's */
static const double COPY_RATE = 6e9;
static const double STEP_TIME = 2e-9; /* seconds per parameter in an optimizer: three passes */

int choir__pipeline_home_use(const choir__pipeline *p, const choir_tensor *t)
{
    int found = -1;
    for (int u = 0; u < p->use_count; u++) {
        if (p->uses[u].tensor != t)
            continue;
        if (!p->uses[u].rows)
            return u;
        if (found < 0)
            found = u;
    }
    return found;
}

static double op_seconds(const choir__pipeline *p, int op)
{
    const choir__op_cost *c = &p->costs[op];
    return c->forward + c->input + c->weight;
}

static double transfer_seconds(const choir__pipeline *p, int op)
{
    return p->crossing[op] / COPY_RATE;
}

/* --- cuts found by cost --- */

/* Sums over the ops before i: seconds; bytes kept for backward; bytes of the gradients that W
 * reads; bytes of the rows that lookups give as gradients; bytes of parameters with their
 * moments, and of the gradients of parameters; uses of parameters. */
typedef struct before {
    double seconds, held, late, rows, params, grads;
    int layers;
} before;

static double block_bytes(double bytes)
{
    return (double)choir__block_size((size_t)bytes);
}

/* Returns whether the gradient of an op's lookups in t stays in rows until the step ends. */
static bool stays_in_rows(const choir__pipeline *p, const choir_tensor *t, int op)
{
    int64_t row = choir__max(1, t->shape.dim[1]) * (int64_t)sizeof(float);
    return choir__rows_stay(
        choir__data_total(p->data), (int64_t)p->made[op] / row, t->shape, CHOIR_F32);
}

/* Adds a parameter where it is stored. Where else its rows are looked up, there is a replica,
 * whose rows, or the table of their sums, are copied to the former when the step ends. */
static void add_param(const choir__pipeline *p, before *sum, int use, double seconds_per_entry)
{
    const choir_tensor *t = p->uses[use].tensor;
    const choir__shares part = choir__data_shares(p->data);
    int home = choir__pipeline_home_use(p, t), op = p->uses[use].op;
    double bytes = (double)t->count * (double)choir_dtype_size(t->dtype);
    bool looks_up = p->uses[use].rows && t->requires_grad;
    bool rows = looks_up && stays_in_rows(p, t, op);
    before *s = &sum[op + 1], *at_home = &sum[p->uses[home].op + 1];
    if (use == home) {
        s->params += block_bytes(bytes * part.values);
        s->params += part.by_unit && !t->param->unit ? block_bytes(bytes) : 0;
        for (const choir__companion *c = t->param->companions; c; c = c->next)
            s->params += block_bytes((double)(*c->tensor)->count * sizeof(float));
        s->grads += t->requires_grad && !part.outside ? bytes : 0;
        s->seconds += (double)t->count * seconds_per_entry;
    } else if (p->uses[use].rows && !p->uses[home].rows) {
        s->params += block_bytes(bytes);
        s->grads += looks_up && !rows ? bytes : 0;
        at_home->rows += rows ? block_bytes(p->made[op]) : 0;
        at_home->params += looks_up && !rows ? block_bytes(bytes) : 0;
    }
    if (rows)
        s->rows += block_bytes(p->made[op]);
}

static before *sums(const choir__pipeline *p, int64_t micros)
{
    before *sum = choir__calloc((size_t)p->ops + 1, sizeof *sum);
    for (int u = 0; u < p->use_count; u++) {
        if (!p->uses[u].tensor->param)
            continue;
        sum[p->uses[u].op + 1].layers++;
        add_param(p, sum, u, STEP_TIME / (double)micros); /* once per step */
    }
    for (int i = 0; i < p->ops; i++) {
        sum[i + 1].seconds += sum[i].seconds + op_seconds(p, i);
        sum[i + 1].held += sum[i].held + p->held[i];
        sum[i + 1].late += sum[i].late + (p->costs[i].weight > 0 ? p->made[i] : 0);
        sum[i + 1].rows += sum[i].rows;
        sum[i + 1].params += sum[i].params;
        sum[i + 1].grads += sum[i].grads;
        sum[i + 1].layers += sum[i].layers;
    }
    return sum;
}

/* The limits of a stage: its part of the device's bytes (0: no limit), and of those of them
 * that any stage takes; the micro-batches that it holds at a time, those of them that wait for
 * W, all of a step's; the levels of its gradients, with the sums beside them, and the most
 * bytes of a micro-batch's gradients until they are added. */
typedef struct room {
    double bytes, taken, micros, late, all, levels, passing;
} room;

/* Returns the bytes that an optimizer takes on the run's device for norms over all parameters:
 * two numbers per row (optim/layout.c), and over ranks a copy of each part's numbers. */
static double norm_bytes(const choir__pipeline *p)
{
    double rows = 0;
    for (int u = 0; u < p->use_count; u++) {
        const choir_tensor *t = p->uses[u].tensor;
        if (t->param && t->requires_grad && choir__pipeline_home_use(p, t) == u)
            rows += t->shape.ndim ? (double)t->shape.dim[0] : 1;
    }
    return 2 * sizeof(double) * rows * (p->remote ? 2 : 1);
}

/* Returns the bytes of the units that are gathered at a time: the last two that were used and
 * the next one; and of two slots of gradients, if no sums keep those. */
static double unit_bytes(const choir__pipeline *p, int64_t micros)
{
    const choir__shares part = choir__data_shares(p->data);
    double most = 0;
    for (int u = 0; part.by_unit && u < p->use_count; u++) {
        const choir__param *first = p->uses[u].tensor->param;
        double bytes = 0;
        for (int v = u; first && first->unit && v < p->use_count; v++) {
            const choir_tensor *t = p->uses[v].tensor;
            if (t->param && t->param->unit == first->unit &&
                choir__pipeline_home_use(p, t) == v)
                bytes += (double)t->count * (double)choir_dtype_size(t->dtype);
        }
        most = block_bytes(bytes) > most ? block_bytes(bytes) : most;
    }
    return (part.outside && micros == 1 ? 5 : 3) * most;
}

/* Returns the most micro-batches of a device that wait for W. */
static int64_t most_late(const choir_pipeline_plan *plan, int device)
{
    int count;
    int64_t late = 0, most = 0;
    const choir_action *a = choir_pipeline_plan_actions(plan, device, &count);
    for (int i = 0; i < count; i++) {
        late += a[i].kind == CHOIR_BACKWARD_INPUT;
        late -= a[i].kind == CHOIR_BACKWARD_WEIGHT;
        most = late > most ? late : most;
    }
    return most;
}

static choir_status find_rooms(const choir__pipeline *p, int64_t micros, room *rooms)
{
    choir_pipeline_plan *plan;
    double norms = norm_bytes(p), units = unit_bytes(p, micros);
    choir_status status =
        choir_pipeline_plan_new(p->schedule, p->device_count, p->chunks, micros, NULL, &plan);
    for (int s = 0; s < p->stages && status == CHOIR_OK; s++) {
        rooms[s].bytes = p->limits[s % p->device_count] / p->chunks;
        if (p->remote || s % p->device_count == 0) /* every rank has a run's device */
            rooms[s].taken = norms / p->chunks;
        rooms[s].taken += units;
        rooms[s].micros =
            (double)choir_pipeline_plan_peak(plan, s % p->device_count) / p->chunks;
        rooms[s].late = (double)most_late(plan, s % p->device_count) / p->chunks;
        rooms[s].all = (double)micros;
        rooms[s].levels =
            choir__data_levels(p->data, micros) + choir__data_shares(p->data).sums;
        rooms[s].passing = micros > 1 ? CHOIR__BUCKET_BYTES : 0;
    }
    if (status == CHOIR_OK)
        choir_pipeline_plan_free(plan);
    return status;
}

/* Returns the bytes of a stage of ops j to i - 1. widest: the most that crosses to one of
 * them. */
static double stage_bytes(
    const choir__pipeline *p, const before *sum, const room *r, int j, int i, double widest)
{
    double kept = sum[i].held - sum[j].held + p->crossing[j], late = sum[i].late - sum[j].late;
    double grads = block_bytes(sum[i].grads - sum[j].grads);
    double params = sum[i].params - sum[j].params, rows = sum[i].rows - sum[j].rows;
    return r->taken + kept * r->micros + late * r->late + rows * r->all + params +
           grads * r->levels + fmin(grads, r->passing) + 2 * widest;
}

/* The DP's value of a stage: seconds, or infinite if it does not fit; or, to find the cuts that
 * come nearest, the bytes that are missing. */
static double stage_value(const choir__pipeline *p, const before *sum, const room *r, int j,
    int i, double widest, bool missing)
{
    double bytes = stage_bytes(p, sum, r, j, i, widest);
    double over = r->bytes && bytes > r->bytes ? bytes - r->bytes : 0;
    if (sum[i].layers == sum[j].layers)
        return 1e300;
    if (missing)
        return over;
    return over > 0 ? 1e300
                    : sum[i].seconds - sum[j].seconds + (j ? 2 * transfer_seconds(p, j) : 0);
}

/* Writes the best cuts to p->first; false: no cuts fit. */
static bool find_cuts(choir__pipeline *p, const before *sum, const room *rooms, bool missing)
{
    int n = p->ops, stages = p->stages;
    size_t columns = (size_t)n + 1;
    double *best = choir__alloc((size_t)stages * columns * sizeof *best);
    int *from = choir__calloc((size_t)stages * columns, sizeof *from);
    for (int s = 0; s < stages; s++)
        for (int i = 0; i <= n; i++) {
            double *b = &best[(size_t)s * columns + (size_t)i], widest = 0;
            *b = 1e300;
            for (int j = i - 1; j >= s; j--) {
                widest = p->crossing[j] > widest ? p->crossing[j] : widest;
                if (s == 0 && j > 0)
                    continue;
                double others = s ? best[(size_t)(s - 1) * columns + (size_t)j] : 0;
                double stage = stage_value(p, sum, &rooms[s], j, i, widest, missing);
                double slowest = others > stage ? others : stage;
                if (slowest < *b) {
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

static void predict(choir__pipeline *p, const before *sum, const room *rooms)
{
    for (int s = 0; s < p->stages; s++) {
        double widest = 0;
        for (int i = p->first[s]; i < p->first[s + 1]; i++)
            widest = p->crossing[i] > widest ? p->crossing[i] : widest;
        p->bytes[s] = stage_bytes(p, sum, &rooms[s], p->first[s], p->first[s + 1], widest);
    }
}

/* Names the stage that lacks most bytes, for the cuts with which it lacks least. */
static choir_status no_cuts_fit(choir__pipeline *p, const before *sum, const room *rooms)
{
    int worst = 0;
    double most = 0;
    find_cuts(p, sum, rooms, true);
    predict(p, sum, rooms);
    for (int s = 0; s < p->stages; s++) {
        double missing = rooms[s].bytes ? p->bytes[s] - rooms[s].bytes : 0;
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

static choir_status cut_by_cost(choir__pipeline *p, const before *sum, const room *rooms)
{
    int most = 0; /* number of ops with parameters; each could be a stage */
    for (int i = 0; i < p->ops; i++)
        most += sum[i + 1].layers > sum[i].layers;
    if (p->stages > most)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: %d stages for a model of %d layers; each stage needs one: take fewer "
            "devices or chunks",
            p->stages, most);
    return find_cuts(p, sum, rooms, false) ? CHOIR_OK : no_cuts_fit(p, sum, rooms);
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
    before *sum = sums(p, micros);
    room *rooms = choir__calloc((size_t)p->stages, sizeof *rooms);
    p->first[0] = 0;
    p->first[p->stages] = p->ops;
    choir_status status = find_rooms(p, micros, rooms);
    if (status == CHOIR_OK)
        status = p->cut_names ? choir__pipeline_cut_by_hand(p) : cut_by_cost(p, sum, rooms);
    if (status == CHOIR_OK) {
        predict(p, sum, rooms);
        sum_stages(p);
    }
    free(sum);
    free(rooms);
    return status;
}
