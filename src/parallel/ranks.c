/* Functions that strategies over ranks share: checks at the start, waits between queues, and
 * the parts of a gradient book's reducer that do not depend on the place of the sums. */
#include "parallel/ranks.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

void choir__group_waits(choir_group *group, const choir_device *device)
{
    choir__queue_wait_event(choir__group_queue(group), choir__queue_record(device->queue));
}

void choir__device_waits(const choir_device *device, choir_group *group)
{
    choir__queue_wait_event(device->queue, choir__queue_record(choir__group_queue(group)));
}

choir_status choir__ranks_sum(
    choir_group *group, choir_device *device, double *numbers, int64_t count)
{
    choir_work work;
    choir__group_waits(group, device);
    choir_status status =
        choir_group_all_reduce(group, numbers, count, CHOIR_F64, CHOIR_SUM, &work);
    choir__device_waits(device, group);
    return status;
}

/* Each rank adds its own numbers to zeros, which is exact, and so needs no order. */
choir_tensor *choir__ranks_gather_numbers(
    choir_group *group, choir_tensor *numbers, int64_t first, int64_t planned, int64_t total)
{
    choir_device *device = choir__device_of(numbers);
    if (numbers->count != planned)
        return choir__poison(numbers->scope, CHOIR_ERR_ARGUMENT,
            "loss_divisor: got the targets of %lld micro-batches; this rank runs %lld of a "
            "step's %lld",
            (long long)numbers->count, (long long)planned, (long long)total);
    choir_tensor *all = choir__tensor_new(numbers->scope, device, CHOIR_F64, choir_dims(total));
    if (all->poisoned)
        return all;
    choir__launch_fill(all, 0);
    choir__launch_bytes(device, (double *)choir__data(all) + first, choir__data(numbers),
        (size_t)numbers->count * sizeof(double));
    choir_status status = choir__ranks_sum(group, device, choir__data(all), total);
    if (status != CHOIR_OK) {
        choir__scope_fail(all->scope, status);
        all->poisoned = true;
    }
    return all;
}

/* --- checks --- */

bool choir__ranks_begin(
    choir_scope **run, choir_module **module, const choir_group *group, const char *function)
{
    *run = choir__open_scope(*run, function);
    *module = choir__module_for(*run, *module, function);
    if (!group)
        choir__poison_missing(*run, function, "group");
    return group;
}

/* Ranks must hold the same parameters in the same order: hashes names and shapes. */
static void hash_tensor(const char *name, choir_tensor *t, void *arg)
{
    uint64_t *h = arg;
    char *text = choir__format("%s %s", name, choir__shape_text(t->shape));
    *h = choir__hash_text(*h, text);
    free(text);
}

/* Machines that compute different bits would diverge without notice. */
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
    uint64_t mine = CHOIR__HASH_SEED, *all = choir__calloc((size_t)world, sizeof *all);
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

/* --- parts of a reducer --- */

typedef struct rows_layout {
    size_t ids, leaf, part; /* bytes of a leaf's ids, of a leaf, of a rank's part */
} rows_layout;

/* Gathers this rank's leaves, then all ranks' leaves; each rank's part is padded to the
 * longest run:
 *     [ids | rows] [ids | rows] ...   rank 0: [ids | rows] [ids | rows] ...   rank 1: ... */
static choir_status exchange_rows(choir_group *group, const choir__book *book,
    const choir__slot *slot, int64_t row_bytes, rows_layout at, char *mine)
{
    for (int64_t l = 0; l < slot->row_count; l++) {
        char *leaf = mine + (size_t)l * at.leaf;
        size_t n = (size_t)slot->rows[l].count;
        if (!n) { /* zeros, for a rank whose recorded step expects the recorded length */
            choir__k_fill zero = {
                .y = leaf, .n = (int64_t)(at.leaf / sizeof(float)), .dtype = CHOIR_F32};
            choir__launch(book->device, CHOIR_F32, fill, &zero);
            continue;
        }
        choir__launch_bytes(book->device, leaf, slot->rows[l].ids_data, n * sizeof(int64_t));
        choir__launch_bytes(
            book->device, leaf + at.ids, slot->rows[l].grads_data, n * (size_t)row_bytes);
    }
    choir__group_waits(group, book->device);
    choir_work work;
    choir_status status =
        choir_group_all_gather(group, mine, mine + at.part, (int64_t)at.part, CHOIR_U8, &work);
    if (status == CHOIR_OK)
        choir__device_waits(book->device, group);
    return status;
}

choir_status choir__ranks_gather_counted(choir_group *group, choir__book *book,
    choir__slot *slot, int64_t row_bytes, const int64_t *counts, bool aside,
    choir__leaf_rows *all)
{
    int world = choir_group_world(group);
    int64_t longest = (book->total + world - 1) / world, most = 0, lo, hi;
    for (int64_t l = 0; l < book->total; l++)
        most = counts[l] > most ? counts[l] : most;
    rows_layout at = {.ids = (size_t)most * sizeof(int64_t)};
    at.leaf = (at.ids + (size_t)(most * row_bytes) + 63) & ~(size_t)63;
    at.part = at.leaf * (size_t)longest;
    size_t all_bytes = at.part * (size_t)(world + 1);
    choir__storage *buffer = choir__storage_new(book->device, all_bytes * (aside ? 2 : 1) + 1);
    if (!buffer)
        return choir__error(CHOIR_ERR_MEMORY,
            "out of memory on %s for the ranks' embedding gradients",
            choir_device_name(book->device));
    choir__storage_tell(buffer, CHOIR__FOR_MESSAGES, "(all ranks' embedding gradients)");
    char *mine = (char *)buffer->data + (aside ? all_bytes : 0);
    choir_status status = exchange_rows(group, book, slot, row_bytes, at, mine);
    for (int r = 0; r < world && status == CHOIR_OK; r++) {
        choir__tree_run(book->total, r, world, &lo, &hi);
        for (int64_t l = lo; l < hi; l++) {
            char *leaf = mine + (size_t)(r + 1) * at.part + (size_t)(l - lo) * at.leaf;
            all[l] = (choir__leaf_rows){
                .ids_data = leaf, .grads_data = leaf + at.ids, .count = counts[l]};
        }
    }
    /* The group's queue has read the buffer before the device continues, so the order of the
     * device's queue protects it. */
    choir__storage_unref(buffer);
    return status;
}

choir_status choir__ranks_gather_rows(choir_group *group, choir__book *book, choir__slot *slot,
    int64_t row_bytes, bool aside, choir__leaf_rows *all)
{
    int64_t first = slot->rows[0].count;
    for (int64_t l = 1; l < slot->row_count; l++)
        if (slot->rows[l].count && slot->rows[l].count != first)
            return choir__error(CHOIR_ERR_SHAPE,
                "a table is looked up %lld times in micro-batch %lld, %lld times in %lld: over "
                "ranks all must be as long (pad them), but under ddp's find_unused_parameters",
                (long long)slot->rows[l].count, (long long)(book->first + l), (long long)first,
                (long long)book->first);
    int64_t *counts = choir__calloc((size_t)book->total, sizeof *counts);
    for (int64_t l = 0; l < book->total; l++)
        counts[l] = first;
    choir_status status =
        choir__ranks_gather_counted(group, book, slot, row_bytes, counts, aside, all);
    free(counts);
    return status;
}

int choir__ranks_list_unused(const choir__book *book, char *names, size_t bytes)
{
    int count = 0;
    size_t at = 0;
    for (int i = 0; i < book->count; i++) {
        const choir__param *p = book->params[i];
        if (!p->tensor->requires_grad || p->uses)
            continue;
        if (count++ < 5 && at < bytes)
            at += (size_t)snprintf(
                names + at, bytes - at, "%s%s", count > 1 ? ", " : "", p->name);
    }
    if (count > 5 && at < bytes)
        snprintf(names + at, bytes - at, ", ...");
    return count;
}

choir_status choir__ranks_name_unused(choir__book *book, const char *strategy)
{
    char names[400] = "";
    int count = choir__ranks_list_unused(book, names, sizeof names);
    if (!count)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "%s: %d parameter%s got no gradient in this backward: %s; freeze what is not trained",
        strategy, count, count > 1 ? "s" : "", names);
}

/* --- buffers --- */
