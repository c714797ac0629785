/* Prices each entry of a recorded step, and replays the queues of its programs on a clock
 * (clock.h): once without jitter, for the seconds and the times of entries, and then with
 * random draws, for quantiles. Equal collectives are priced once. */
#include "forecast/replay.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "forecast/clock.h"
#include "forecast/network.h"

enum { LARGE = 1024 }; /* ranks */

/* A call whose price is known. */
typedef struct priced_call {
    choir__call_shape shape;
    choir__call_cost cost;
} priced_call;

typedef struct replay {
    const choir__step *step;
    const choir__cluster *cluster;
    const choir__costs *costs;
    choir__forecast *forecast;
    choir__priced *programs;
    priced_call *calls;
    int call_count;
    double kernel_s, measured_s; /* summed over ranks */
} replay;

/* --- prices --- */

/* Returns the price of a call, which equal calls share. */
static choir_status price_call(
    replay *r, const choir__call_shape *shape, choir__call_cost *cost)
{
    for (int i = 0; i < r->call_count; i++)
        if (memcmp(&r->calls[i].shape, shape, sizeof *shape) == 0) {
            *cost = r->calls[i].cost;
            return CHOIR_OK;
        }
    choir_status status = choir__network_price(r->cluster, shape, cost);
    if (status)
        return status;
    CHOIR__GROW(r->calls, r->call_count);
    r->calls[r->call_count].shape = *shape;
    r->calls[r->call_count++].cost = *cost;
    return CHOIR_OK;
}

/* Interpolates the price of a call of a large group between powers of two: its schedules are
 * long, and a step has calls of many sizes. */
static choir_status price_large(
    replay *r, const choir__call_shape *shape, choir__call_cost *cost)
{
    choir__call_shape near = *shape;
    choir__call_cost above;
    int64_t low = 1;
    while (low <= shape->count / 2)
        low *= 2;
    near.count = low;
    choir_status status = price_call(r, &near, cost);
    near.count = 2 * low;
    if (!status)
        status = price_call(r, &near, &above);
    if (status)
        return status;
    const double share = (double)(shape->count - low) / (double)low;
    cost->seconds += share * (above.seconds - cost->seconds);
    for (int level = 0; level < CHOIR__LEVELS; level++)
        cost->bytes[level] += share * (above.bytes[level] - cost->bytes[level]);
    return CHOIR_OK;
}

static choir_status price_collective(
    replay *r, const choir__step_program *p, const choir__step_entry *e, double *seconds)
{
    choir__call_cost cost;
    choir__call_shape shape;
    memset(&shape, 0, sizeof shape); /* compared by bytes */
    shape.kind = e->as.collective.kind;
    shape.algorithm = e->as.collective.algorithm;
    shape.dtype = e->as.collective.dtype;
    shape.count = e->as.collective.count;
    shape.leaves = e->as.collective.leaves;
    shape.group = r->step->groups[e->as.collective.group];
    shape.root = e->as.collective.root;
    shape.world = r->step->world;
    const bool message = shape.kind == CHOIR__SEND || shape.kind == CHOIR__RECEIVE;
    const int64_t reach = shape.group.stride * shape.group.size;
    shape.first = message ? p->first
                  : shape.group.ranks
                      ? shape.group.ranks[0]
                      : p->first / reach * reach + p->first % shape.group.stride;
    choir_status status = shape.group.size > LARGE && shape.count > 1
                              ? price_large(r, &shape, &cost)
                              : price_call(r, &shape, &cost);
    if (status)
        return status;
    *seconds = shape.kind == CHOIR__RECEIVE ? 0 : cost.seconds;
    for (int level = 0; level < CHOIR__LEVELS && shape.kind != CHOIR__RECEIVE; level++)
        r->forecast->bytes[level] +=
            cost.bytes[level] * (double)p->ranks / (message ? 1 : (double)shape.group.size);
    return CHOIR_OK;
}

static double copy_seconds(
    const replay *r, const choir__step_program *p, const choir__step_entry *e)
{
    const choir__device_model *d = &r->cluster->device;
    const int from = e->as.copy.from, here = p->queues[e->queue].device;
    const choir__link *l = &r->cluster->links[CHOIR__LEVEL_CORE];
    if (from >= 0 && from < p->queue_count && p->queues[from].device != here && l->ports)
        return l->alpha_s + e->as.copy.bytes / (l->beta_bytes_s * l->share);
    return d->launch_s + 2 * e->as.copy.bytes / (d->memory_bytes_s * d->memory_share);
}

static choir_status price_entry(
    replay *r, const choir__step_program *p, int64_t i, double *seconds, double *spread)
{
    const choir__step_entry *e = &p->entries[i];
    bool measured;
    *seconds = *spread = 0;
    switch (e->kind) {
    case CHOIR__ENTRY_KERNEL:
        *seconds = choir__kernel_seconds(&r->cluster->device, r->costs, e, &measured, spread);
        *spread = *spread > r->cluster->kernel_jitter ? *spread : r->cluster->kernel_jitter;
        r->forecast->flops += e->as.kernel.flops * (double)p->ranks;
        r->kernel_s += *seconds * (double)p->ranks;
        r->measured_s += measured ? *seconds * (double)p->ranks : 0;
        return CHOIR_OK;
    case CHOIR__ENTRY_COPY:
        *seconds = copy_seconds(r, p, e);
        *spread = r->cluster->kernel_jitter;
        return CHOIR_OK;
    case CHOIR__ENTRY_COLLECTIVE: return price_collective(r, p, e, seconds);
    default: return CHOIR_OK;
    }
}

/* --- programs --- */

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Returns the programs of the ranks in the group of a program's first rank. */
static int *members_of(const replay *r, const choir__step_program *p, choir__step_group group)
{
    const int64_t reach = group.stride * group.size,
                  first = p->first / reach * reach + p->first % group.stride;
    bool *seen = choir__calloc((size_t)r->step->program_count, sizeof *seen);
    int *members = NULL, count = 0;
    for (int64_t i = 0; i < group.size; i++) {
        const int64_t rank = group.ranks ? group.ranks[i] : first + i * group.stride;
        const int of = rank < r->step->world ? choir__step_program_of(r->step, rank) : -1;
        if (of < 0 || seen[of])
            continue;
        seen[of] = true;
        CHOIR__GROW(members, count);
        members[count++] = of;
    }
    qsort(members, (size_t)count, sizeof *members, by_number);
    CHOIR__GROW(members, count);
    members[count] = -1;
    free(seen);
    return members;
}

/* Distributes a program's entries over its queues, and counts the host's waits. */
static void sort_entries(choir__priced *to)
{
    const choir__step_program *p = to->program;
    int hosts = 0;
    to->after = choir__alloc(((size_t)p->entry_count + 1) * sizeof *to->after);
    to->lines = choir__calloc((size_t)p->queue_count + 1, sizeof *to->lines);
    to->line_counts = choir__calloc((size_t)p->queue_count + 1, sizeof *to->line_counts);
    for (int64_t e = 0; e < p->entry_count; e++)
        to->line_counts[p->entries[e].queue]++;
    for (int q = 0; q < p->queue_count; q++) {
        to->lines[q] = choir__alloc(((size_t)to->line_counts[q] + 1) * sizeof **to->lines);
        to->line_counts[q] = 0;
    }
    for (int64_t e = 0; e < p->entry_count; e++) {
        const int q = p->entries[e].queue;
        to->lines[q][to->line_counts[q]++] = e;
        to->after[e] = hosts;
        hosts += p->entries[e].kind == CHOIR__ENTRY_HOST;
    }
}

static choir_status prepare(replay *r, int program)
{
    const choir__step_program *p = &r->step->programs[program];
    choir__priced *to = &r->programs[program];
    choir_status status = CHOIR_OK;
    to->program = p;
    to->seconds = choir__alloc(((size_t)p->entry_count + 1) * sizeof *to->seconds);
    to->spread = choir__alloc(((size_t)p->entry_count + 1) * sizeof *to->spread);
    to->members = choir__calloc((size_t)r->step->group_count + 1, sizeof *to->members);
    sort_entries(to);
    for (int g = 0; g < r->step->group_count; g++)
        to->members[g] = members_of(r, p, r->step->groups[g]);
    for (int64_t e = 0; e < p->entry_count && !status; e++)
        status = price_entry(r, p, e, &to->seconds[e], &to->spread[e]);
    return status;
}

static void priced_free(const replay *r, choir__priced *p)
{
    if (!p->program)
        return;
    for (int q = 0; q < p->program->queue_count; q++)
        free(p->lines[q]);
    for (int g = 0; g < r->step->group_count; g++)
        free(p->members[g]);
    free(p->lines);
    free(p->line_counts);
    free(p->members);
    free(p->seconds);
    free(p->spread);
    free(p->after);
}

/* --- replays --- */

static int devices_of(const choir__step_program *p)
{
    int count = 0;
    for (int q = 0; q < p->queue_count; q++) {
        bool first = p->queues[q].device >= 0;
        for (int before = 0; before < q; before++)
            first &= p->queues[before].device != p->queues[q].device;
        count += first;
    }
    return count;
}

/* Replays the step without jitter, for its seconds, its times and its idle share. */
static choir_status replay_exactly(replay *r, bool times)
{
    choir__forecast *f = r->forecast;
    const int programs = r->step->program_count;
    double *busy = choir__calloc((size_t)programs, sizeof *busy), working = 0, all = 0;
    if (times) {
        f->times = choir__calloc((size_t)programs, sizeof *f->times);
        f->programs = programs;
        for (int p = 0; p < programs; p++)
            f->times[p] =
                choir__calloc((size_t)r->step->programs[p].entry_count + 1, sizeof **f->times);
    }
    choir__clock_setup setup = {
        .step = r->step, .programs = r->programs, .times = f->times, .busy = busy};
    choir_status status = choir__clock_run(&setup, &f->seconds);
    for (int p = 0; p < programs; p++) {
        const choir__step_program *q = &r->step->programs[p];
        working += busy[p] * (double)q->ranks;
        all += f->seconds * (double)q->ranks * devices_of(q);
    }
    f->idle = all > 0 && working < all ? 1 - working / all : 0;
    f->low = f->high = f->median = f->seconds;
    free(busy);
    return status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Replays the step with jitter; low and high are quantiles of the draws. */
static choir_status replay_draws(replay *r, choir__replay_opts opts)
{
    double *draws = choir__alloc((size_t)opts.draws * sizeof *draws);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < opts.draws && !status; i++) {
        choir__clock_setup setup = {.step = r->step,
            .programs = r->programs,
            .device_spread = r->cluster->device_spread,
            .seed = opts.seed,
            .draw = (uint64_t)i + 1};
        status = choir__clock_run(&setup, &draws[i]);
    }
    qsort(draws, (size_t)opts.draws, sizeof *draws, by_size);
    if (!status) {
        r->forecast->low = draws[opts.draws / 20];
        r->forecast->median = draws[opts.draws / 2];
        r->forecast->high = draws[opts.draws - 1 - opts.draws / 20];
    }
    free(draws);
    return status;
}

choir_status choir__replay(const choir__step *step, const choir__cluster *cluster,
    const choir__costs *costs, choir__replay_opts opts, choir__forecast *forecast)
{
    replay r = {.step = step, .cluster = cluster, .costs = costs, .forecast = forecast};
    *forecast = (choir__forecast){0};
    choir_status status = choir__step_check(step);
    if (!status)
        status = choir__cluster_holds(cluster, step->world);
    if (status)
        return status;
    r.programs = choir__calloc((size_t)step->program_count, sizeof *r.programs);
    for (int p = 0; p < step->program_count && !status; p++)
        status = prepare(&r, p);
    if (!status)
        status = replay_exactly(&r, opts.times);
    if (!status && opts.draws > 0)
        status = replay_draws(&r, opts);
    forecast->measured = r.kernel_s > 0 ? r.measured_s / r.kernel_s : 0;
    for (int p = 0; p < step->program_count; p++)
        priced_free(&r, &r.programs[p]);
    free(r.programs);
    free(r.calls);
    if (status)
        choir__forecast_free(forecast);
    return status;
}

void choir__forecast_free(choir__forecast *f)
{
    for (int p = 0; p < f->programs; p++)
        free(f->times[p]);
    free(f->times);
    *f = (choir__forecast){0};
}
