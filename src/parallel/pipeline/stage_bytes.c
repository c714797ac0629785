/* The bytes and seconds of stages.
 *
 * A stage holds the bytes that its ops keep for backward, with the ones that cross its first
 * cut, for each micro-batch that the schedule holds at a time; the gradients that it keeps for
 * W; its parameters with the optimizer's state, which the measured steps have made, and the
 * levels of their gradients' tree, or as much of them as a sharder leaves it; the largest
 * bucket of gradients, which has memory of its own while a micro-batch is added to its sibling;
 * the rows that lookups give in a step; and the operands of one op. */
#include <math.h>
#include <stdlib.h>

#include "device/device.h"
#include "parallel/pipeline/cut.h"

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

double choir__cut_transfer_seconds(const choir__pipeline *p, int op)
{
    return p->crossing[op] / COPY_RATE;
}

static double block_bytes(double bytes)
{
    return (double)choir__block_size((size_t)bytes);
}

static double bytes_of(const choir_tensor *t)
{
    return (double)t->count * (double)choir_dtype_size(t->dtype);
}

/* Returns the bytes of the rows that a lookup gives; 0: they do not stay until the step ends.
 */
static double bytes_in_rows(const choir__pipeline *p, const choir__op_use *use)
{
    const choir_tensor *t = use->tensor;
    bool gives = use->rows && t->requires_grad;
    bool stay =
        gives && choir__rows_stay(t->param, choir__data_total(p->data), use->rows, CHOIR_F32);
    return stay ? block_bytes((double)(use->rows * t->shape.dim[1]) * sizeof(float)) : 0;
}

/* --- sums over ops --- */

/* Adds a parameter where it is stored. Where else its rows are looked up, there is a replica,
 * whose rows, or the table of their sums, are copied to the former when the step ends. */
static void add_param(choir__cut_costs *c, int number, double seconds_per_entry)
{
    const choir__pipeline *p = c->pipeline;
    const choir_tensor *t = p->uses[number].tensor;
    const choir__shares part = choir__data_shares(p->data);
    choir__cut_use *use = &c->uses[number];
    const int home = use->home;
    const double bytes = bytes_of(t), rows = bytes_in_rows(p, &p->uses[number]);
    const bool looks_up = p->uses[number].rows && t->requires_grad;
    choir__cut_before *s = &c->sum[p->uses[number].op + 1],
                      *at_home = &c->sum[p->uses[home].op + 1];
    if (number == home) {
        s->params += block_bytes(bytes * part.values);
        s->params += part.by_unit && !t->param->unit ? block_bytes(bytes) : 0;
        for (const choir__companion *k = t->param->companions; k; k = k->next)
            s->params += block_bytes((double)(*k->tensor)->count * sizeof(float));
        use->bytes = t->requires_grad && !part.outside && rows == 0 ? bytes : 0;
        s->grads += t->requires_grad && !part.outside ? bytes : 0;
        s->seconds += (double)t->count * seconds_per_entry;
    } else if (p->uses[number].rows && !p->uses[home].rows) {
        s->params += block_bytes(bytes);
        use->bytes = looks_up && rows == 0 ? bytes : 0;
        s->grads += use->bytes;
        at_home->rows += rows;
        at_home->params += looks_up && rows == 0 ? block_bytes(bytes) : 0;
    }
    use->alone = looks_up;
    s->rows += rows;
}

/* Divides a large gradient into the parts in which a sharder takes it; each part is a bucket.
 */
static void divide(choir__cut_use *use, const choir_tensor *t)
{
    const int64_t rows = t->param->part_uses ? choir__part_rows(t->shape) : 0;
    if (!rows || rows >= t->shape.dim[0])
        return;
    use->bytes = fmin(use->bytes, bytes_of(t) * (double)rows / (double)t->shape.dim[0]);
    use->alone = true;
}

static void add_uses(choir__cut_costs *c, int64_t micros)
{
    const choir__pipeline *p = c->pipeline;
    for (int u = 0; u < p->use_count; u++) {
        c->uses[u].home = choir__pipeline_home_use(p, p->uses[u].tensor);
        c->first_use[p->uses[u].op + 1] = u + 1;
        if (!p->uses[u].tensor->param)
            continue;
        c->sum[p->uses[u].op + 1].layers++;
        add_param(c, u, STEP_TIME / (double)micros); /* once per step */
        if (c->caps.by_unit)
            divide(&c->uses[u], p->uses[u].tensor);
    }
}

static void sum_up(choir__cut_costs *c)
{
    const choir__pipeline *p = c->pipeline;
    for (int i = 0; i < p->ops; i++) {
        choir__cut_before *s = &c->sum[i + 1], *last = &c->sum[i];
        s->seconds += last->seconds + op_seconds(p, i);
        s->held += last->held + p->held[i];
        s->late += last->late + (p->costs[i].weight > 0 ? p->made[i] : 0);
        s->rows += last->rows;
        s->params += last->params;
        s->grads += last->grads;
        s->layers += last->layers;
        c->first_use[i + 1] = (int)choir__max(c->first_use[i + 1], c->first_use[i]);
    }
}

/* --- the rooms --- */

/* Returns the bytes that an optimizer takes on the run's device for norms over all parameters:
 * two numbers per row (optim/layout.c), and over ranks a copy of each part's numbers. */
static double norm_bytes(const choir__cut_costs *c)
{
    const choir__pipeline *p = c->pipeline;
    double rows = 0;
    for (int u = 0; u < p->use_count; u++) {
        const choir_tensor *t = p->uses[u].tensor;
        if (t->param && t->requires_grad && c->uses[u].home == u)
            rows += t->shape.ndim ? (double)t->shape.dim[0] : 1;
    }
    return 2 * sizeof(double) * rows * (p->remote ? 2 : 1);
}

/* Returns the bytes of the units that are gathered at a time: the last two that were used and
 * the next one; and of two slots of gradients, if no sums keep those. */
static double unit_bytes(const choir__cut_costs *c, int64_t micros)
{
    const choir__pipeline *p = c->pipeline;
    const choir__shares part = choir__data_shares(p->data);
    double most = 0, *units = NULL;
    int count = 0;
    for (int u = 0; part.by_unit && u < p->use_count; u++) {
        const choir_tensor *t = p->uses[u].tensor;
        if (!t->param || !t->param->unit || c->uses[u].home != u)
            continue;
        while (count <= t->param->unit) {
            CHOIR__GROW(units, count);
            units[count++] = 0;
        }
        units[t->param->unit] += bytes_of(t);
    }
    for (int i = 0; i < count; i++)
        most = fmax(most, block_bytes(units[i]));
    free(units);
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

static choir_status find_rooms(choir__cut_costs *c, int64_t micros)
{
    const choir__pipeline *p = c->pipeline;
    choir_pipeline_plan *plan;
    const double norms = norm_bytes(c), units = unit_bytes(c, micros),
                 levels =
                     choir__data_levels(p->data, micros) + choir__data_shares(p->data).sums;
    choir_status status =
        choir_pipeline_plan_new(p->schedule, p->device_count, p->chunks, micros, NULL, &plan);
    for (int s = 0; s < p->stages && status == CHOIR_OK; s++) {
        choir__cut_room *r = &c->rooms[s];
        r->bytes = p->limits[s % p->device_count] / p->chunks;
        if (p->remote || s % p->device_count == 0) /* every rank has a run's device */
            r->taken = norms / p->chunks;
        r->taken += units;
        r->micros = (double)choir_pipeline_plan_peak(plan, s % p->device_count) / p->chunks;
        r->late = (double)most_late(plan, s % p->device_count) / p->chunks;
        r->all = (double)micros;
        r->levels = levels;
    }
    if (status == CHOIR_OK)
        choir_pipeline_plan_free(plan);
    return status;
}

choir_status choir__cut_costs_open(
    choir__cut_costs *c, const choir__pipeline *p, int64_t micros)
{
    *c = (choir__cut_costs){
        .pipeline = p, .caps = choir__data_bucket_caps(p->data), .passes = micros > 1};
    c->sum = choir__calloc((size_t)p->ops + 1, sizeof *c->sum);
    c->rooms = choir__calloc((size_t)p->stages, sizeof *c->rooms);
    c->uses = choir__calloc((size_t)p->use_count + 1, sizeof *c->uses);
    c->first_use = choir__calloc((size_t)p->ops + 1, sizeof *c->first_use);
    add_uses(c, micros);
    sum_up(c);
    return find_rooms(c, micros);
}

void choir__cut_costs_close(choir__cut_costs *c)
{
    free(c->sum);
    free(c->rooms);
    free(c->uses);
    free(c->first_use);
}

/* --- a stage --- */

/* Adds a gradient to the buckets, as they are laid out (autograd/layout.c). */
static void add_gradient(const choir__cut_costs *c, choir__cut_ops *ops, int number)
{
    const choir__cut_use *use = &c->uses[number];
    const int unit = c->pipeline->uses[number].tensor->param->unit;
    const double cap = ops->buckets <= 1 ? c->caps.first : c->caps.others;
    ops->largest = fmax(ops->largest, use->bytes);
    if (use->alone)
        return;
    if (!ops->buckets || ops->unit != unit || (!c->caps.by_unit && ops->open >= cap)) {
        ops->buckets++;
        ops->open = 0;
        ops->unit = unit;
    }
    ops->open += use->bytes;
    ops->largest = fmax(ops->largest, ops->open);
}

void choir__cut_add_op(const choir__cut_costs *c, choir__cut_ops *ops, int j)
{
    ops->widest = fmax(ops->widest, c->pipeline->crossing[j]);
    for (int u = c->first_use[j + 1] - 1; u >= c->first_use[j]; u--)
        if (c->uses[u].bytes > 0)
            add_gradient(c, ops, u);
}

double choir__cut_stage_bytes(
    const choir__cut_costs *c, int stage, int j, int i, const choir__cut_ops *ops)
{
    const choir__cut_room *r = &c->rooms[stage];
    const choir__cut_before *to = &c->sum[i], *from = &c->sum[j];
    const double kept = to->held - from->held + c->pipeline->crossing[j],
                 late = to->late - from->late, rows = to->rows - from->rows,
                 params = to->params - from->params,
                 grads = block_bytes(to->grads - from->grads);
    return r->taken + kept * r->micros + late * r->late + rows * r->all + params +
           grads * r->levels + (c->passes ? block_bytes(ops->largest) : 0) + 2 * ops->widest;
}
