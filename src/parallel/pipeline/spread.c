/* Spreading: before the cuts are known, every stage takes its share of the parameters.
 *
 * The first steps are measured, and the ops are known only then. The modules are known at once,
 * though, in order of registration, which nearly always equals the forward pass's. So each
 * stage takes a run of modules: those from its cut on if the caller named cuts, otherwise its
 * share of the bytes. Values are drawn on the stage's device, so no device ever holds the whole
 * model. Until the cuts are made, an op runs where its parameters are (op_stage.c). */
#include <stdlib.h>
#include <string.h>

#include "parallel/pipeline/pipeline.h"

/* A parameter or buffer. A tied parameter is where it is used last, since its gradient is dense
 * there. */
typedef struct item {
    choir_tensor *tensor; /* NULL: a later entry is tied to it */
    const choir_module *owner;
    double bytes;
} item;

typedef struct items {
    item *list;
    int count;
    double bytes;
} items;

static void add(items *all, choir_tensor *t, const choir_module *owner)
{
    double bytes = (double)t->count * (double)choir_dtype_size(t->dtype);
    CHOIR__GROW(all->list, all->count);
    all->list[all->count++] = (item){t, owner, bytes};
    all->bytes += bytes;
}

/* Moves a parameter of the list to its end; a tie to anything else is not the pipeline's. */
static void add_tied(items *all, choir_tensor *t, const choir_module *owner)
{
    for (int i = 0; i < all->count; i++)
        if (all->list[i].tensor && all->list[i].tensor == t) {
            all->bytes -= all->list[i].bytes;
            all->list[i].tensor = NULL;
            all->list[i].bytes = 0;
            add(all, t, owner);
            return;
        }
}

static void collect(items *all, const choir_module *m)
{
    for (choir__module_entry *e = m->inside->entries; e; e = e->next)
        switch (e->kind) {
        case CHOIR__CHILD: collect(all, e->child); break;
        case CHOIR__PARAM:
        case CHOIR__BUFFER: add(all, e->tensor, m); break;
        case CHOIR__TIED: add_tied(all, e->tensor, m); break;
        case CHOIR__CONSTANT: break; /* an operand as any other */
        }
}

/* --- shares of the bytes --- */

/* Bytes of a stage per byte of its parameters, as a guess: values, gradients on two levels of
 * their tree, two moments, and activations. */
enum { STATE = 8 };

/* Writes the end of each stage's share, in bytes of parameters. Shares are equal, but a device
 * with a limit takes no more than fits; the others take the rest. */
static void share(const choir__pipeline *p, double bytes, double *ends)
{
    double left = bytes;
    for (int s = 0; s < p->stages; s++)
        ends[s] = -1;
    for (int open = p->stages, before = -1; open && open != before;) {
        double each = left / open;
        before = open;
        for (int s = 0; s < p->stages; s++) {
            double room = p->limits[s % p->device_count] / p->chunks / STATE;
            if (ends[s] >= 0 || room == 0 || room >= each)
                continue;
            ends[s] = room;
            left -= room;
            open--;
        }
    }
    int open = 0;
    for (int s = 0; s < p->stages; s++)
        open += ends[s] < 0;
    double scale = open ? 1 : bytes / (bytes - left);
    for (int s = 0; s < p->stages; s++)
        ends[s] = (s ? ends[s - 1] : 0) + (ends[s] < 0 ? left / open : ends[s] * scale);
}

static double bytes_of_owner(const items *all, int from)
{
    double bytes = 0;
    for (int i = from; i < all->count && all->list[i].owner == all->list[from].owner; i++)
        bytes += all->list[i].bytes;
    return bytes;
}

/* Entries of one module stay together, as operands of one op, unless they are more than a
 * stage. */
static void split_by_bytes(const choir__pipeline *p, const items *all, int *stages)
{
    double *ends = choir__calloc((size_t)p->stages, sizeof *ends), before = 0;
    share(p, all->bytes, ends);
    for (int i = 0, s = 0; i < all->count; i++) {
        bool begins = !i || all->list[i].owner != all->list[i - 1].owner;
        double bytes = begins ? bytes_of_owner(all, i) : all->list[i].bytes;
        bool divided = bytes > all->bytes / p->stages;
        if (divided)
            bytes = all->list[i].bytes;
        while ((begins || divided) && s < p->stages - 1 && before + bytes / 2 > ends[s])
            s++;
        stages[i] = s;
        before += all->list[i].bytes;
    }
    free(ends);
}

/* --- cuts by hand --- */

/* Returns the first item of the module that the cut names; of a cut after some of its ops, the
 * one after the first module in it. -1: the cut is the number of an op. */
static int item_of_cut(const items *all, const char *cut)
{
    size_t length;
    int ops = choir__pipeline_cut_path(cut, &length);
    if (ops < 0)
        return -1;
    int i = 0;
    while (i < all->count && !choir__pipeline_is_inside(all->list[i].owner->path, cut, length))
        i++;
    for (int first = i; ops && i < all->count && all->list[i].owner == all->list[first].owner;)
        i++;
    return i;
}

/* Returns false if a cut is the number of an op, so that its module is not known yet. */
static bool split_by_cuts(const choir__pipeline *p, const items *all, int *stages)
{
    for (int s = 1; s < p->stages; s++) {
        int first = item_of_cut(all, p->cut_names[s - 1]);
        if (first < 0)
            return false;
        for (int i = first; i < all->count; i++)
            stages[i] = s;
    }
    return true;
}

/* --- placing --- */

static choir_status put(choir__pipeline *p, choir_tensor *t, int stage)
{
    choir_device *device = choir__stage_device(p, stage);
    if (!t->param)
        return choir__tensor_move(t, device, true);
    t->param->stage = stage;
    return choir__param_move(t->param, device);
}

/* A stage whose values and gradients exceed its device's limit cannot run, whatever the
 * optimizer stores. */
static choir_status check_rooms(const choir__pipeline *p, const items *all, const int *stages)
{
    const choir__shares part = choir__data_shares(p->data);
    double grads = part.outside ? 0 : part.sums > 0 ? part.sums : 1;
    for (int d = 0; d < p->device_count; d++) {
        double bytes = 0, limit = p->limits[d];
        for (int i = 0; i < all->count; i++)
            if (stages[i] % p->device_count == d && all->list[i].tensor)
                bytes += all->list[i].bytes *
                         (part.values + (all->list[i].tensor->requires_grad ? grads : 0));
        if (limit && bytes > limit)
            return choir__error(CHOIR_ERR_MEMORY,
                "pipeline: stage %d is too large for %s: its parameters and gradients have "
                "%.1f MiB, and the device's limit is %.1f MiB: %.1f MiB are missing",
                d, choir_device_name(p->devices[d]), bytes / 1048576, limit / 1048576,
                (bytes - limit) / 1048576);
    }
    return CHOIR_OK;
}

static choir_status read_limits(choir__pipeline *p)
{
    memset(p->limits, 0, (size_t)p->device_count * sizeof *p->limits);
    if (p->remote)
        return choir__pipeline_share_limits(p);
    for (int d = 0; d < p->device_count; d++) {
        choir_device_stats stats;
        choir_device_get_stats(p->devices[d], &stats);
        p->limits[d] = (double)stats.bytes_limit;
    }
    return CHOIR_OK;
}

choir_status choir__pipeline_spread(choir__pipeline *p)
{
    items all = {0};
    if (p->stages == 1)
        return CHOIR_OK;
    choir_status status = read_limits(p);
    if (status != CHOIR_OK)
        return status;
    collect(&all, p->module);
    int *stages = choir__calloc((size_t)all.count + 1, sizeof *stages);
    if (!p->cut_names || !split_by_cuts(p, &all, stages))
        split_by_bytes(p, &all, stages);
    status =
        choir__strategies_take_first(p->base.run, stages, (size_t)all.count * sizeof *stages);
    if (status == CHOIR_OK)
        status = check_rooms(p, &all, stages);
    for (int i = 0; i < all.count && status == CHOIR_OK; i++)
        if (all.list[i].tensor)
            status = put(p, all.list[i].tensor, stages[i]);
    free(stages);
    free(all.list);
    p->spread = status == CHOIR_OK;
    if (status == CHOIR_OK && p->data)
        status = choir__pipeline_make_books(p);
    return status;
}
