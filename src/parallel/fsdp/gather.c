/* Stage 3 if ranks share no memory, or if shards are off-loaded: a unit's weights are gathered
 * into the device's pool before use and released after it.
 *
 *     forward    | block 0 | block 1 | block 2 | loss |  block 2 | block 1 | block 0
 *     gathers    | 0, 1    | 2       |                |  1       | 0       |
 *     memory     | 0 1     | 1 2     | 2       | 2    |  2 1     | 1 0     | 0
 *
 * A request for a weight's address (choir__data) gathers its unit. The units of a micro-batch
 * are used in the same order every time, so from the second micro-batch on the next unit is
 * gathered ahead, by a group of its own: gathers do not wait for gradients. A unit is released
 * when the next but one is used, since an op may use weights of two units; the last unit of
 * forward is the first of backward and stays. Unit 0, the parameters outside all units, stays
 * from its first use to the end of the step.
 *
 * Every gather is a collective, so all ranks must use their weights in the same order and
 * equally often. A rank with one micro-batch less gathers once more for the other ranks.
 *
 * A stage of a pipeline runs forward and backward of several micro-batches by turns, in the
 * order of its plan. It has a gather of its own, with a whole step's order of units;
 * its replicas have the same plan, since they have equally many micro-batches. */
#include <stdio.h>
#include <stdlib.h>

#include "parallel/fsdp/fsdp.h"
#include "tensor/launch.h"

enum { ALIGN = 16 }; /* elements */

/* The weights of a unit: the rows of all ranks. */
typedef struct whole {
    choir__fsdp_gather *gather;
    int number;
    choir__param **params;
    choir__rows_cut *cuts; /* (count) out: position in this rank's array */
    uint32_t *versions;    /* (count) versions of the values in this rank's array */
    int count;
    int64_t elements;
    choir__storage *memory; /* NULL: not gathered */
    choir__event came;
    bool used; /* the device has been made to wait for `came` */
} whole;

/* The units in the order of their first use in the previous micro-batch. */
typedef struct order {
    int *units;
    int count, at; /* at: number of units that the current micro-batch has used */
} order;

struct choir__fsdp_gather {
    choir__fsdp *f;
    choir_group *group;
    choir__storage *mine; /* this rank's rows of all weights */
    void *mine_outside;   /* their piece of f->outside; NULL: they are in the pool */
    whole *units;
    int unit_count;
    order training, evaluation;
    order *now;
    whole *latest; /* the last unit gathered; stays, since an op may use weights of two units */
    bool backward;
    /* memory that replaces weights which could not be gathered, once the run has failed */
    char *scrap;
};

/* --- one unit --- */

static choir_device *device_of(const choir__fsdp_gather *g)
{
    return g->f->device;
}

static void point(whole *u, char *at)
{
    for (int i = 0; i < u->count; i++)
        u->params[i]->tensor->storage->data =
            at ? at + (size_t)u->cuts[i].at * choir_dtype_size(u->gather->f->dtype) : NULL;
}

static void refuse(const void *args)
{
    choir__queue_fail(CHOIR_ERR_MEMORY, "%s", (const char *)args);
}

/* Makes the run fail; results computed from the scrap memory are never used. The peers, who
 * would wait for this rank, receive the reason. A device that cannot read the scrap memory
 * refuses further work. */
static void give_up(whole *u, choir_status status)
{
    choir__fsdp_gather *g = u->gather;
    int64_t most = 0;
    choir__group_abort(g->group, status, choir__message());
    choir__scope_fail(g->f->base.run, status);
    if (device_of(g)->far) {
        char text[256];
        snprintf(text, sizeof text, "%s", choir__message());
        choir__queue_issue(device_of(g)->queue, refuse, text, sizeof text);
    }
    for (int i = 0; i < g->unit_count; i++)
        most = choir__max(most, g->units[i].elements);
    if (!g->scrap)
        g->scrap = choir__calloc((size_t)most, choir_dtype_size(g->f->dtype));
    point(u, g->scrap);
}

/* Lets the pages of this rank's rows go, if they are a file's: after a step without an update,
 * too, no more of them stay in memory than a unit's. */
static void let_go(const whole *u)
{
    const choir__fsdp *f = u->gather->f;
    for (int i = 0; i < u->count && f->outside; i++) {
        int64_t lo, n = choir__cut_part(&u->cuts[i], choir_group_rank(f->shard),
                        choir_group_world(f->shard), &lo);
        const void *at[CHOIR__OUTSIDE_PARTS] = {
            (const char *)u->gather->mine->data +
            (size_t)u->cuts[i].out * choir_dtype_size(f->dtype)};
        choir__offload_store_let_go(f->outside, choir__group_queue(u->gather->group), at,
            (size_t)n * choir_dtype_size(f->dtype));
    }
}

static choir_status fetch(whole *u)
{
    choir__fsdp_gather *g = u->gather;
    size_t bytes = (size_t)u->elements * choir_dtype_size(g->f->dtype);
    u->memory = choir__storage_new(device_of(g), bytes);
    choir__storage_holds(u->memory, CHOIR__MEMORY_WEIGHTS);
    choir__storage_tell(u->memory, CHOIR__FOR_MESSAGES, "(gathered units)");
    if (!u->memory)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for the weights of the unit with '%s', %zu bytes; smaller "
            "units need less",
            choir_device_name(device_of(g)), u->params[0]->name, bytes);
    const choir__gather_rows args = {.mine = g->mine->data,
        .all = u->memory->data,
        .cuts = u->cuts,
        .cut_count = u->count,
        .dtype = g->f->dtype};
    choir__group_waits(g->group, device_of(g));
    choir_status status = choir__group_gather_rows(g->group, &args);
    u->came = choir__queue_record(choir__group_queue(g->group));
    point(u, u->memory->data);
    let_go(u);
    return status;
}

/* Copies values written to the gathered weights to this rank's rows. */
static void write_back(whole *u)
{
    const choir__fsdp *f = u->gather->f;
    for (int i = 0; i < u->count; i++) {
        const choir__param *p = u->params[i];
        int64_t lo, n = choir__cut_part(&u->cuts[i], choir_group_rank(f->shard),
                        choir_group_world(f->shard), &lo);
        if (p->tensor->storage->version == u->versions[i] || !n)
            continue;
        choir__launch_bytes(device_of(u->gather), choir__data(p->local),
            (char *)u->memory->data + (size_t)(u->cuts[i].at + lo) * choir_dtype_size(f->dtype),
            (size_t)n * choir_dtype_size(f->dtype));
        p->local->storage->version++;
    }
}

static void note_versions(whole *u)
{
    for (int i = 0; i < u->count; i++)
        u->versions[i] = u->params[i]->tensor->storage->version;
}

/* Releases a unit's memory. keep: first saves values that were written to the gathered
 * weights. */
static void drop(whole *u, bool keep)
{
    if (!u->memory)
        return;
    if (!u->used) /* the group may still write to the memory, which is about to be reused */
        choir__queue_wait_event(device_of(u->gather)->queue, u->came);
    if (keep)
        write_back(u);
    note_versions(u);
    choir__storage_unref(u->memory);
    u->memory = NULL;
    u->used = false;
    point(u, NULL);
}

static void drop_all(choir__fsdp_gather *g, int from, bool keep)
{
    for (int i = from; i < g->unit_count; i++)
        drop(&g->units[i], keep);
}

/* --- the order of units --- */

/* Notes the use of u; returns the unit to gather ahead, or NULL. */
static whole *take_turn(choir__fsdp_gather *g, const whole *u)
{
    order *o = g->now;
    if (o->at == o->count || o->units[o->at] != u->number) {
        CHOIR__GROW(o->units, o->at);
        o->units[o->at] = u->number;
        o->count = o->at + 1;
    }
    o->at++;
    return o->at < o->count ? &g->units[o->units[o->at]] : NULL;
}

/* Called when a weight of the unit is about to be used. */
void choir__fsdp_gather_bring(choir__strategy *s, void *unit)
{
    whole *u = unit, *next = NULL;
    (void)s;
    choir__fsdp_gather *g = u->gather;
    if (u->used)
        return;
    choir_status status = choir__scope_status(g->f->base.run);
    for (int i = 1; i < g->unit_count && u->number; i++)
        if (&g->units[i] != u && &g->units[i] != g->latest && g->units[i].memory &&
            (g->backward || g->f->opts.reshard_after_forward))
            drop(&g->units[i], true);
    if (!u->memory && status == CHOIR_OK)
        status = fetch(u);
    if (status == CHOIR_OK) {
        choir__queue_wait_event(device_of(g)->queue, u->came);
        u->used = true;
        g->latest = u->number ? u : g->latest;
        next = u->number ? take_turn(g, u) : NULL;
    }
    if (next && !next->memory)
        status = fetch(next);
    if (status != CHOIR_OK)
        give_up(u->used ? next : u, status);
}

/* Ends the current micro-batch. */
static void end_turn(choir__fsdp_gather *g)
{
    drop_all(g, 1, true);
    if (g->now->at) /* 0: no unit was used since the last end */
        g->now->count = g->now->at;
    g->now->at = 0;
    g->latest = NULL;
    g->backward = false;
}

void choir__fsdp_gather_forward(choir__fsdp_gather *g, bool training)
{
    end_turn(g);
    g->now = training ? &g->training : &g->evaluation;
}

void choir__fsdp_gather_backward(choir__fsdp_gather *g)
{
    g->backward = true;
}

void choir__fsdp_gather_finish(choir__fsdp_gather *g, int64_t more)
{
    choir_status status = CHOIR_OK;
    end_turn(g);
    for (int64_t m = 0; m < more; m++)
        for (int i = 0; i < g->training.count && status == CHOIR_OK; i++) {
            whole *u = &g->units[g->training.units[i]];
            status = fetch(u);
            drop(u, false);
        }
    if (status != CHOIR_OK)
        choir__scope_fail(g->f->base.run, status);
    drop_all(g, 0, true);
}

void choir__fsdp_gather_updated(choir__fsdp_gather *g)
{
    drop_all(g, 0, false);
    for (int i = 0; i < g->unit_count; i++)
        note_versions(&g->units[i]);
}

void choir__fsdp_gather_reset(choir__fsdp_gather *g)
{
    end_turn(g);
    drop_all(g, 0, true);
}

choir_status choir__fsdp_gather_status(const choir__fsdp_gather *g)
{
    return choir__queue_status(choir__group_queue(g->group));
}

size_t choir__fsdp_gather_bytes(const choir__fsdp_gather *g)
{
    size_t bytes = 0;
    for (int i = 0; i < g->unit_count; i++)
        if (g->units[i].memory)
            bytes += choir__block_size(g->units[i].memory->bytes);
    return bytes;
}

/* --- construction --- */

static void count_units(choir__fsdp_gather *g)
{
    for (int i = 0; i < g->f->count; i++)
        if (g->f->params[i]->unit >= g->unit_count)
            g->unit_count = g->f->params[i]->unit + 1;
    g->units = choir__calloc((size_t)g->unit_count, sizeof *g->units);
    for (int i = 0; i < g->f->count; i++)
        g->units[g->f->params[i]->unit].count++;
    for (int i = 0; i < g->unit_count; i++) {
        whole *u = &g->units[i];
        u->gather = g;
        u->number = i;
        u->params = choir__calloc((size_t)u->count + 1, sizeof(choir__param *));
        u->cuts = choir__calloc((size_t)u->count + 1, sizeof *u->cuts);
        u->versions = choir__calloc((size_t)u->count + 1, sizeof *u->versions);
        u->count = 0;
    }
}

static int64_t align(int64_t elements)
{
    return (elements + ALIGN - 1) / ALIGN * ALIGN;
}

/* Places the parameters in their units, and their rows in this rank's array. Every rank's array
 * has room for the largest share. Returns the elements of the array. */
static int64_t place(choir__fsdp_gather *g)
{
    int64_t own = 0, world = choir_group_world(g->f->shard);
    for (int i = 0; i < g->f->count; i++) {
        choir__param *p = g->f->params[i];
        whole *u = &g->units[p->unit];
        choir_shape shape = p->tensor->shape;
        int64_t count = p->tensor->count, rows = shape.ndim ? shape.dim[0] : 1;
        choir__rows_cut cut = {
            .at = u->elements, .rows = rows, .row = rows ? count / rows : 0, .out = own};
        u->params[u->count] = p;
        u->cuts[u->count++] = cut;
        u->elements += align(count);
        own += align((rows + world - 1) / world * cut.row);
    }
    return own;
}

/* Makes p->local this rank's rows, with current or initial values, or with the values of
 * released rows; the whole parameter has no memory until it is gathered. */
static void settle(whole *u, choir__param *p, const choir__rows_cut *cut)
{
    choir__fsdp_gather *g = u->gather;
    choir_tensor *t = p->tensor, old = *t, *rows = p->local == t ? NULL : p->local;
    choir_device *device = device_of(g);
    int64_t lo;
    choir__cut_part(cut, choir_group_rank(g->f->shard), choir_group_world(g->f->shard), &lo);
    t->storage =
        choir__storage_wrap(device, NULL, (size_t)t->count * choir_dtype_size(t->dtype));
    t->storage->version = old.storage ? old.storage->version + 1 : 0;
    t->storage->holder = &g->f->strategy;
    t->storage->held = u;
    t->offset = 0;
    choir__fsdp_take_rows(g->f, p, cut, g->mine, cut->out);
    size_t bytes = (size_t)p->local->count * choir_dtype_size(t->dtype);
    if (rows)
        choir__launch_bytes(device, choir__data(p->local), choir__data(rows), bytes);
    else if (p->initialised && bytes)
        choir__launch_bytes(device, choir__data(p->local),
            (char *)choir__data(&old) + (size_t)lo * choir_dtype_size(t->dtype), bytes);
    else
        choir__param_draw(p, p->local, lo);
    p->initialised = true;
    choir__storage_unref(old.storage);
    if (rows)
        choir__tensor_release(rows);
}

/* Allocates the memory of this rank's rows. */
static choir_status take_shard(choir__fsdp_gather *g, size_t bytes)
{
    choir__fsdp *f = g->f;
    choir_device *device = device_of(g);
    const char *what = "this rank's share of the weights";
    if (!f->outside) {
        g->mine = choir__storage_new(device, bytes);
        choir__storage_holds(g->mine, CHOIR__MEMORY_WEIGHTS);
        choir__storage_tell(g->mine, CHOIR__FOR_WORK, "(this rank's shares)");
        return g->mine ? CHOIR_OK
                       : choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for %s, %zu bytes",
                             choir_device_name(device), what, bytes);
    }
    choir_status status =
        choir__offload_store_get(f->outside, device, bytes, what, &g->mine_outside);
    if (status != CHOIR_OK)
        choir__group_abort(f->shard, status, choir__message());
    else
        g->mine = choir__storage_outside(device, f->outside, g->mine_outside, bytes);
    return status;
}

choir_status choir__fsdp_gather_new(choir__fsdp *f)
{
    choir_device *device = f->device;
    choir__fsdp_gather *g = f->gather = choir__calloc(1, sizeof *g);
    g->f = f;
    g->now = &g->training;
    count_units(g);
    choir_status status = take_shard(g, (size_t)(place(g) + 1) * choir_dtype_size(f->dtype));
    if (status == CHOIR_OK)
        status = choir_group_split(f->shard, 0, choir_group_rank(f->shard), &g->group);
    if (status != CHOIR_OK)
        return status;
    choir__scope_uses(f->base.run, device);
    for (int i = 0; i < g->unit_count; i++) {
        for (int k = 0; k < g->units[i].count; k++)
            settle(&g->units[i], g->units[i].params[k], &g->units[i].cuts[k]);
        note_versions(&g->units[i]);
    }
    return CHOIR_OK;
}

void choir__fsdp_gather_free(choir__fsdp_gather *g)
{
    if (!g)
        return;
    choir_group_free(g->group);
    for (int i = 0; i < g->unit_count; i++) {
        choir__storage_unref(g->units[i].memory);
        free(g->units[i].params);
        free(g->units[i].cuts);
        free(g->units[i].versions);
    }
    choir__storage_unref(g->mine);
    if (g->mine_outside)
        choir__offload_store_put(g->f->outside, g->mine_outside);
    free(g->scrap);
    free(g->units);
    free(g->training.units);
    free(g->evaluation.units);
    free(g);
}
