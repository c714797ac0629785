/* A meeting: the workers' values are averaged in a flat array, and update the weights from it.
 *
 *     flat    [ w - weight of a | w - weight of b | ... ]    DiLoCo; local SGD: the weights
 *                 | mean over the workers, one reduction
 *                 v
 *     w, m    a step of SGD with momentum by flat; then weight = w, for all workers
 *
 * All of this is queued, on the device and on the group, and nothing waits on the host. All
 * ranks compute the same from the mean, so their weights are equal bit by bit.
 *
 * The workers are leaves of the fixed tree (base/tree.h). A rank adds the
 * workers of its own that make up a node, one row of flat per node, and the group adds the
 * nodes of all ranks. So the bits do not depend on which rank has which worker.
 *
 * Slow links make bytes expensive, so flat may be sent as bf16. It is added in f32 and rounded
 * once, so ranks still agree on every bit. The rounding error of a difference of weights is
 * small compared to the weights. A rank with several workers rounds their values as if it sent
 * them, and sends the sums as f32. */
#include "parallel/diloco/diloco.h"

#include <stdlib.h>

#include "base/tree.h"
#include "parallel/ranks.h"
#include "tensor/launch.h"

enum { ALIGN = 16 }; /* elements: pieces begin at cache lines */

/* --- memory --- */

static choir_tensor *flat_tensor(
    const choir__diloco *w, choir_dtype dtype, int64_t rows, int64_t n)
{
    choir_scope *run = w->base.run;
    choir_tensor *t = choir__tensor_new(run, run->device, dtype, choir_dims(rows, n));
    choir__storage_tell(t->storage, CHOIR__FOR_MESSAGES, "(sums of workers)");
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

/* Returns the greatest number of sums that a rank holds while it adds up its workers' values.
 */
static int64_t rows_of(const choir__diloco *w)
{
    choir__node nodes[CHOIR__MAX_NODES];
    int most = 0;
    for (int64_t i = 0; i < w->here; i++) {
        int before = choir__tree_nodes(w->first, w->first + i, nodes);
        most = choir__max(most, before + 1);
    }
    return most;
}

static void make_outer(const choir__diloco *w, choir__worker_piece *p)
{
    p->outer = choir__tensor_like(w->base.run, p->param->tensor);
    choir__storage_tell(p->outer->storage, CHOIR__FOR_WORK, "(weights of the last meeting)");
    if (w->hyper.momentum == 0)
        return;
    p->momentum = choir__tensor_like(w->base.run, p->param->tensor);
    choir__storage_tell(p->momentum->storage, CHOIR__FOR_WORK, "(momentum of meetings)");
    if (!p->momentum->poisoned)
        choir__launch_fill(p->momentum, 0);
}

/* Uploads the table of the outer step, in which flat is the gradient. */
static bool upload_table(choir__diloco *w)
{
    choir_device *device = w->base.run->device;
    choir__opt_entry *table = choir__calloc((size_t)w->piece_count + 1, sizeof *table);
    size_t bytes = (size_t)w->piece_count * sizeof *table;
    for (int i = 0; i < w->piece_count; i++) {
        const choir__worker_piece *p = &w->pieces[i];
        table[i] = (choir__opt_entry){.param = choir__data(p->outer),
            .grad = (const float *)choir__data(w->flat) + p->at,
            .m = p->momentum ? choir__data(p->momentum) : NULL,
            .n = p->outer->count,
            .row = p->outer->count};
    }
    w->entries = choir__storage_new(device, bytes);
    w->hypers = choir__storage_new(device, sizeof w->hyper);
    bool room = w->entries && w->hypers;
    if (room) {
        choir__launch_upload(device, w->entries->data, table, bytes);
        choir__launch_upload(device, w->hypers->data, &w->hyper, sizeof w->hyper);
    }
    free(table);
    return room;
}

choir_status choir__diloco_lay_out(choir__diloco *w)
{
    choir_scope *run = w->base.run;
    int64_t n = 0;
    for (int i = 0; i < w->piece_count; i++) {
        w->pieces[i].at = n;
        n += (w->pieces[i].param->tensor->count + ALIGN - 1) / ALIGN * ALIGN;
        if (w->diloco)
            make_outer(w, &w->pieces[i]);
    }
    w->row = n;
    w->flat = flat_tensor(w, CHOIR_F32, rows_of(w), n);
    if (w->bf16)
        w->short_flat = flat_tensor(w, CHOIR_BF16, 1, n);
    choir_status status = choir__scope_status(run);
    if (status != CHOIR_OK || !w->diloco)
        return status;
    if (!upload_table(w))
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for an outer optimizer",
            choir_device_name(run->device));
    choir__diloco_restart(w);
    return CHOIR_OK;
}

/* --- one worker's values --- */

static float *row_of(const choir__diloco *w, int64_t row)
{
    return (float *)choir__data(w->flat) + row * w->row;
}

static void copy_values(const choir__diloco *w, int piece, void *to, const void *from)
{
    const choir_tensor *t = w->pieces[piece].param->tensor;
    choir__launch_bytes(w->base.run->device, to, from, (size_t)t->count * sizeof(float));
}

/* Computes y = a op b for n numbers. */
static void combine(const choir__diloco *w, choir__binary_op op, float *y, const float *a,
    const float *b, int64_t n)
{
    choir__k_binary args = {.y = {.p = y, .stride = {1}},
        .a = {.p = (float *)(uintptr_t)a, .stride = {1}},
        .b = {.p = (float *)(uintptr_t)b, .stride = {1}},
        .shape = {n},
        .ndim = 1,
        .op = op,
        .dtype = CHOIR_F32};
    if (n)
        choir__launch(w->base.run->device, CHOIR_F32, binary, &args);
}

/* Puts what a worker sends into a row: w - weight, or the weight. Both have the same layout, so
 * they are treated as rows of numbers. */
static void put_leaf(const choir__diloco *w, int turn, float *row)
{
    for (int i = 0; i < w->piece_count; i++) {
        const choir__worker_piece *p = &w->pieces[i];
        const float *weight = choir__diloco_values(w, turn, i);
        if (w->diloco)
            combine(w, CHOIR__SUB, row + p->at, choir__data(p->outer), weight, p->outer->count);
        else
            copy_values(w, i, row + p->at, weight);
    }
}

/* Gives all workers here the weights; from(w, i) returns the address of piece i. */
static void give_weights(
    const choir__diloco *w, const void *(*from)(const choir__diloco *, int))
{
    for (int i = 0; i < w->piece_count; i++) {
        choir_tensor *t = w->pieces[i].param->tensor;
        choir__storage_claim(t->storage);
        t->storage->version++;
        for (int turn = 0; turn < w->here; turn++)
            copy_values(w, i, choir__diloco_values(w, turn, i), from(w, i));
    }
}

static const void *outer_of(const choir__diloco *w, int piece)
{
    return choir__data(w->pieces[piece].outer);
}

static const void *mean_of(const choir__diloco *w, int piece)
{
    return row_of(w, 0) + w->pieces[piece].at;
}

/* --- the mean --- */

/* Rounds a row to bf16, as if it had been sent. */
static void round_row(const choir__diloco *w, int64_t row)
{
    choir_tensor one = *w->flat;
    one.shape.dim[0] = 1;
    one.count = w->row;
    one.offset += row * w->row;
    choir__launch_copy(w->short_flat, &one);
    choir__launch_copy(&one, w->short_flat);
}

static bool is_one_per_rank(const choir__diloco *w)
{
    return w->count == choir_group_world(w->group);
}

/* Sums the values of this rank's workers into the nodes that they make up, one per row. */
static void add_leaves(const choir__diloco *w)
{
    choir__node stack[CHOIR__MAX_NODES];
    int top = 0;
    for (int turn = 0; turn < w->here; turn++) {
        put_leaf(w, turn, row_of(w, top));
        if (w->short_flat && !is_one_per_rank(w))
            round_row(w, top);
        stack[top++] = (choir__node){w->first + turn, 1};
        while (top > 1 && choir__tree_siblings(stack[top - 2], stack[top - 1])) {
            combine(w, CHOIR__ADD, row_of(w, top - 2), row_of(w, top - 2), row_of(w, top - 1),
                w->row);
            stack[top - 2].leaves *= 2;
            top--;
        }
    }
}

/* Replaces row 0 by the mean over the ranks of a group, with one worker each. */
static choir_status mean_of_ranks(const choir__diloco *w, choir_group *group, choir_work *work)
{
    choir_tensor *sent = w->short_flat ? w->short_flat : w->flat;
    return choir_group_all_reduce(
        group, choir__data(sent), w->row, sent->dtype, CHOIR_MEAN, work);
}

/* Replaces row 0 by the mean over all workers. */
static choir_status mean_of_workers(const choir__diloco *w)
{
    const choir__tree_reduce args = {.nodes = choir__data(w->flat),
        .node_stride = (size_t)w->row * sizeof(float),
        .count = w->row,
        .leaves = w->count,
        .scale = (double)(float)(1.0 / (double)w->count),
        .algorithm = CHOIR__AUTO};
    return choir__group_tree_reduce(w->group, &args);
}

/* Buffers are worker 0's. Sends bytes, since buffers include integer counters. */
static choir_status share_buffers(const choir__diloco *w, choir_group *group)
{
    choir_status status = CHOIR_OK;
    choir_work work;
    for (int i = w->piece_count; i < w->tensor_count && status == CHOIR_OK; i++) {
        choir__storage *s = w->tensors[i]->storage;
        choir__storage_claim(s);
        status = choir_group_broadcast(group, s->data, (int64_t)s->bytes, CHOIR_U8, 0, &work);
    }
    return status;
}

/* Replaces row 0 by the mean of what the workers of the group's ranks have put into their rows.
 */
static choir_status average(choir__diloco *w, choir_group *group)
{
    choir_device *device = w->base.run->device;
    const bool alone = is_one_per_rank(w);
    choir_work work;
    add_leaves(w);
    if (w->short_flat && alone)
        choir__launch_copy(w->short_flat, w->flat);
    choir_status status = choir_group_wait_device(group, device);
    if (status == CHOIR_OK)
        status = share_buffers(w, group);
    if (status == CHOIR_OK && alone)
        status = mean_of_ranks(w, group, &work);
    else if (status == CHOIR_OK)
        status = mean_of_workers(w);
    if (status != CHOIR_OK)
        return status;
    choir__device_waits(device, group);
    choir__diloco_spread(w, w->piece_count);
    if (w->short_flat && alone)
        choir__launch_copy(w->flat, w->short_flat);
    else if (w->short_flat)
        round_row(w, 0);
    return CHOIR_OK;
}

/* --- meetings --- */

static choir_status average_weights(choir__diloco *w, choir_group *group)
{
    choir_status status = average(w, group);
    if (status == CHOIR_OK)
        give_weights(w, mean_of);
    return status;
}

static choir_status outer_step(choir__diloco *w)
{
    choir_status status = average(w, w->group);
    if (status != CHOIR_OK)
        return status;
    choir__k_optim args = {
        .entries = w->entries->data, .count = w->piece_count, .hyper = w->hypers->data};
    choir__launch(w->base.run->device, CHOIR_F32, sgd, &args);
    give_weights(w, outer_of);
    return CHOIR_OK;
}

choir_status choir__diloco_meet(choir__diloco *w)
{
    w->apart = 0;
    w->meetings++;
    return w->diloco ? outer_step(w) : average_weights(w, w->group);
}

choir_status choir__diloco_meet_near(choir__diloco *w)
{
    return average_weights(w, w->near);
}

void choir__diloco_restart(choir__diloco *w)
{
    choir__diloco_spread(w, 0);
    for (int i = 0; i < w->piece_count && w->diloco; i++)
        copy_values(w, i, choir__data(w->pieces[i].outer), choir__diloco_values(w, 0, i));
}
