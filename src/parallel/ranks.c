/* What strategies over ranks have in common: agreeing at the start, waiting for each other's
 * queues, and the parts of a gradient book's reducer that do not depend on where sums lie. */
#include "parallel/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void choir__group_waits(choir_group *group, const choir_device *device)
{
    choir__queue_wait_event(choir__group_queue(group), choir__queue_record(device->queue));
}

void choir__device_waits(const choir_device *device, choir_group *group)
{
    choir__queue_wait_event(device->queue, choir__queue_record(choir__group_queue(group)));
}

/* --- agreeing --- */

/* Ranks must hold the same parameters in the same order: names and shapes, hashed. */
static void hash_tensor(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    char *text = choir__format("%s %s", name, choir__shape_text(t->shape));
    for (const char *c = text; *c; c++)
        *h = (*h ^ (unsigned char)*c) * 0x100000001B3u;
    free(text);
}

/* Machines that compute other bits would drift apart unseen. */
static choir_status check_same_machine(
    choir_group *group, const choir_module *module, const char *strategy)
{
    int world = choir_group_world(group);
    char mine[CHOIR__SIGNATURE] = "", *all = choir__calloc((size_t)world, sizeof mine);
    choir__device_signature(module->run->device, mine);
    choir_status status = choir_group_all_gather(group, mine, all, sizeof mine, CHOIR_U8, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (strcmp(all + (size_t)r * sizeof mine, mine))
            status = choir__error(CHOIR_ERR_MISMATCH,
                "%s: rank %d computes with %s, this one with %s: their bits would differ",
                strategy, r, all + (size_t)r * sizeof mine, mine);
    free(all);
    return status;
}

static choir_status check_same_model(
    choir_group *group, choir_module *module, const char *strategy)
{
    int world = choir_group_world(group);
    uint64_t mine = 0xCBF29CE484222325u, *all = choir__calloc((size_t)world, sizeof *all);
    choir__module_visit_named(module, true, hash_tensor, &mine);
    choir_status status = choir_group_all_gather(group, &mine, all, 1, CHOIR_I64, NULL);
    for (int r = 0; r < world && status == CHOIR_OK; r++)
        if (all[r] != mine)
            status = choir__error(CHOIR_ERR_MISMATCH,
                "%s: the model of rank %d has other parameters than this one", strategy, r);
    free(all);
    return status;
}

choir_status choir__ranks_agree(choir_group *group, choir_module *module, const char *strategy)
{
    choir_status status = check_same_machine(group, module, strategy);
    return status == CHOIR_OK ? check_same_model(group, module, strategy) : status;
}

/* --- a reducer's --- */

/* The ranks' leaves side by side, each rank's part padded to the longest run:
 *     rank 0: [ids | rows] [ids | rows] ...   rank 1: ... */
choir_status choir__ranks_gather_rows(choir_group *group, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    int world = choir_group_world(group);
    int64_t n = slot->rows[0].count, longest = (book->total + world - 1) / world;
    size_t ids_bytes = (size_t)n * sizeof(int64_t), rows_bytes = (size_t)(n * row_bytes);
    size_t leaf_bytes = (ids_bytes + rows_bytes + 63) & ~(size_t)63;
    size_t part = leaf_bytes * (size_t)longest;
    choir__storage *buffer = choir__storage_new(book->device, part * (size_t)(world + 1));
    if (!buffer)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for the ranks' embedding gradients",
            choir_device_name(book->device));
    char *mine = buffer->data, *theirs = mine + part;
    for (int64_t l = 0; l < slot->row_count; l++) {
        char *leaf = mine + (size_t)l * leaf_bytes;
        choir__launch_bytes(book->device, leaf, slot->rows[l].ids_data, ids_bytes);
        choir__launch_bytes(
            book->device, leaf + ids_bytes, slot->rows[l].grads_data, rows_bytes);
    }
    choir__group_waits(group, book->device);
    choir_work work;
    choir_status status =
        choir_group_all_gather(group, mine, theirs, (int64_t)part, CHOIR_U8, &work);
    if (status != CHOIR_OK) {
        choir__storage_unref(buffer);
        return status;
    }
    choir__device_waits(book->device, group);
    for (int r = 0; r < world; r++) {
        int64_t lo, hi;
        choir__tree_run(book->total, r, world, &lo, &hi);
        for (int64_t l = lo; l < hi; l++) {
            char *leaf = theirs + (size_t)r * part + (size_t)(l - lo) * leaf_bytes;
            all[l] = (choir__leaf_rows){
                .ids_data = leaf, .grads_data = leaf + ids_bytes, .count = n};
        }
    }
    /* The group's queue has read it by the time the device goes on, so the device's order is
     * enough. */
    choir__storage_unref(buffer);
    return CHOIR_OK;
}

choir_status choir__ranks_name_unused(choir__book *book, const char *strategy)
{
    char names[400] = "";
    int count = 0;
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        if (!p->tensor->requires_grad || p->uses)
            continue;
        if (count++ < 5)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                count > 1 ? ", " : "", p->name);
    }
    if (!count)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "%s: %d parameter%s got no gradient in this backward: %s%s; freeze what is not trained",
        strategy, count, count > 1 ? "s" : "", names, count > 5 ? ", ..." : "");
}

/* --- buffers --- */

struct sync {
    choir_group *group;
    int buffers;
};

static void broadcast_buffer(const char *name, choir_tensor *t, void *arg)
{
    struct sync *s = arg;
    (void)name;
    choir_work work;
    if (t->param)
        return;
    choir_status status = choir_group_broadcast(
        s->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, &work);
    if (status != CHOIR_OK)
        choir__scope_fail(t->scope->run, status);
}

static void count_buffer(const char *name, choir_tensor *t, void *arg)
{
    (void)name;
    ((struct sync *)arg)->buffers += !t->param;
}

void choir__ranks_sync_buffers(
    choir_group *group, choir_module *module, const choir_scope *scope, uint64_t *synced)
{
    struct sync s = {group, 0};
    if (*synced == scope->step + 1)
        return;
    *synced = scope->step + 1;
    choir_module_visit(module, true, count_buffer, &s);
    if (!s.buffers)
        return;
    choir__group_waits(group, module->run->device);
    choir_module_visit(module, true, broadcast_buffer, &s);
    choir__device_waits(module->run->device, group);
}
