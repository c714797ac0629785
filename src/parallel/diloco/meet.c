/* A meeting: the ranks average a flat array, and update their weights from it.
 *
 *     flat    [ w - weight of a | w - weight of b | ... ]    DiLoCo; local SGD: the weights
 *                 | mean over the ranks, one all-reduce
 *                 v
 *     w, m    a step of SGD with momentum by flat; then weight = w
 *
 * All of this is queued, on the device and on the group, and nothing waits on the host. All
 * ranks compute the same from the mean, so their weights are equal bit by bit.
 *
 * Slow links make bytes expensive, so flat may be sent as bf16. It is added in f32 and rounded
 * once, so ranks still agree on every bit. The rounding error of a difference of weights is
 * small compared to the weights. */
#include <stdlib.h>

#include "parallel/diloco/diloco.h"
#include "tensor/launch.h"

enum { ALIGN = 16 }; /* elements: pieces begin at cache lines */

/* --- memory --- */

static choir_tensor *flat_tensor(const choir__worker *w, choir_dtype dtype, int64_t n)
{
    choir_scope *run = w->base.run;
    choir_tensor *t = choir__tensor_new(run, run->device, dtype, choir_dims(n));
    if (!t->poisoned)
        choir__launch_fill(t, 0);
    return t;
}

static void make_outer(const choir__worker *w, choir__worker_piece *p)
{
    p->outer = choir__tensor_like(w->base.run, p->param->tensor);
    if (w->hyper.momentum == 0)
        return;
    p->momentum = choir__tensor_like(w->base.run, p->param->tensor);
    if (!p->momentum->poisoned)
        choir__launch_fill(p->momentum, 0);
}

/* Uploads the table of the outer step, in which flat is the gradient. */
static bool upload_table(choir__worker *w)
{
    choir_device *device = w->base.run->device;
    choir__opt_entry *table = choir__calloc((size_t)w->count + 1, sizeof *table);
    size_t bytes = (size_t)w->count * sizeof *table;
    for (int i = 0; i < w->count; i++) {
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

choir_status choir__worker_lay_out(choir__worker *w)
{
    choir_scope *run = w->base.run;
    int64_t n = 0;
    for (int i = 0; i < w->count; i++) {
        w->pieces[i].at = n;
        n += (w->pieces[i].param->tensor->count + ALIGN - 1) / ALIGN * ALIGN;
        if (w->diloco)
            make_outer(w, &w->pieces[i]);
    }
    w->flat = flat_tensor(w, CHOIR_F32, n);
    if (w->bf16)
        w->short_flat = flat_tensor(w, CHOIR_BF16, n);
    choir_status status = choir__scope_status(run);
    if (status != CHOIR_OK || !w->diloco)
        return status;
    if (!upload_table(w))
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for an outer optimizer",
            choir_device_name(run->device));
    choir__worker_restart(w);
    return CHOIR_OK;
}

/* --- messages --- */

static float *flat_of(const choir__worker *w, const choir__worker_piece *p)
{
    return (float *)choir__data(w->flat) + p->at;
}

static void copy_weights(const choir__worker *w, const choir__worker_piece *p, void *to)
{
    const choir_tensor *t = p->param->tensor;
    choir__launch_bytes(
        w->base.run->device, to, choir__data(t), (size_t)t->count * sizeof(float));
}

/* flat = w - weight. Both have the same layout, so they are treated as rows of numbers. */
static void put_difference(const choir__worker *w, const choir__worker_piece *p)
{
    choir__k_binary args = {.y = {.p = flat_of(w, p), .stride = {1}},
        .a = {.p = choir__data(p->outer), .stride = {1}},
        .b = {.p = choir__data(p->param->tensor), .stride = {1}},
        .shape = {p->outer->count},
        .ndim = 1,
        .op = CHOIR__SUB,
        .dtype = CHOIR_F32};
    choir__launch(w->base.run->device, CHOIR_F32, binary, &args);
}

static void write_weights(
    const choir__worker *w, const choir__worker_piece *p, const void *from)
{
    choir_tensor *t = p->param->tensor;
    choir__storage_claim(t->storage);
    t->storage->version++;
    choir__launch_bytes(
        w->base.run->device, choir__data(t), from, (size_t)t->count * sizeof(float));
}

struct sharing {
    choir_group *group;
    choir_status status;
};

/* Sends bytes, since buffers include integer counters. */
static void share_buffer(const char *name, choir_tensor *t, void *arg)
{
    struct sharing *s = arg;
    choir_work work;
    (void)name;
    if (t->param || s->status != CHOIR_OK)
        return;
    choir__storage_claim(t->storage);
    s->status = choir_group_broadcast(
        s->group, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, &work);
}

/* Replaces flat by its mean over the group. */
static choir_status average(const choir__worker *w, choir_group *group)
{
    choir_device *device = w->base.run->device;
    choir_tensor *sent = w->short_flat ? w->short_flat : w->flat;
    struct sharing buffers = {group, CHOIR_OK};
    choir_work work;
    if (w->short_flat)
        choir__launch_copy(sent, w->flat);
    choir_status status = choir_group_wait_device(group, device);
    if (status == CHOIR_OK)
        choir_module_visit(w->module, true, share_buffer, &buffers);
    status = status == CHOIR_OK ? buffers.status : status;
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(
            group, choir__data(sent), sent->count, sent->dtype, CHOIR_MEAN, &work);
    if (status == CHOIR_OK)
        status = choir_device_wait_work(device, work);
    if (status == CHOIR_OK && w->short_flat)
        choir__launch_copy(w->flat, sent);
    return status;
}

/* --- meetings --- */

static choir_status average_weights(choir__worker *w, choir_group *group)
{
    for (int i = 0; i < w->count; i++)
        copy_weights(w, &w->pieces[i], flat_of(w, &w->pieces[i]));
    choir_status status = average(w, group);
    for (int i = 0; i < w->count && status == CHOIR_OK; i++)
        write_weights(w, &w->pieces[i], flat_of(w, &w->pieces[i]));
    return status;
}

static choir_status outer_step(choir__worker *w)
{
    for (int i = 0; i < w->count; i++)
        put_difference(w, &w->pieces[i]);
    choir_status status = average(w, w->group);
    if (status != CHOIR_OK)
        return status;
    choir__k_optim args = {
        .entries = w->entries->data, .count = w->count, .hyper = w->hypers->data};
    choir__launch(w->base.run->device, CHOIR_F32, sgd, &args);
    for (int i = 0; i < w->count; i++)
        write_weights(w, &w->pieces[i], choir__data(w->pieces[i].outer));
    return CHOIR_OK;
}

choir_status choir__worker_meet(choir__worker *w)
{
    w->apart = 0;
    w->meetings++;
    return w->diloco ? outer_step(w) : average_weights(w, w->group);
}

choir_status choir__worker_meet_near(choir__worker *w)
{
    return average_weights(w, w->near);
}

void choir__worker_restart(choir__worker *w)
{
    for (int i = 0; i < w->count && w->diloco; i++)
        copy_weights(w, &w->pieces[i], choir__data(w->pieces[i].outer));
}
