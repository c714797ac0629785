/* The DataParallel module: which modules it can wrap, and its forward.
 *
 * One thread issues the work of all devices, in their order. Nothing waits: a device computes
 * its first tasks while the next device receives its own. Before a replica runs, the module's
 * fields are bound to its tensors (parallel/shards.h). An error in one replica stops the
 * issue of the others, and becomes the batch's error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "nn/module.h"
#include "parallel/shards.h"
#include "tensor/handle.h"

choir_data_parallel_opts choir_data_parallel_defaults(void)
{
    return (choir_data_parallel_opts){0};
}

/* --- forward --- */

/* Returns NULL, or the poisoned tensor of the error. */
static choir_tensor *check_result(
    const choir_shards *s, const choir__batch_piece *p, const char *did)
{
    const choir_tensor *out = p->out;
    if (out->poisoned || choir__scope_status(p->scope) != CHOIR_OK)
        return choir__piece_failed(s, p, did, choir__scope_status(p->scope));
    if (out->scope != p->scope || choir__device_of(out) != p->scope->device)
        return choir__poison(s->scope, CHOIR_ERR_DEVICE,
            "data_parallel: %s of module '%s' on %s gave a tensor on %s that is not of its "
            "inputs' scope",
            did, *s->dp->module->path ? s->dp->module->path : s->dp->module->type->name,
            choir_device_name(p->scope->device), choir_device_name(choir__device_of(out)));
    return NULL;
}

/* Fills all replicas first, so that they wait only for the first device's earlier work, not for
 * its forward. */
static choir_status fill_replicas(choir_shards *s)
{
    choir__replicas *r = &s->dp->replicas;
    choir__event from = choir__queue_record(r->replica[0].device->queue);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < s->count && status == CHOIR_OK; i++)
        if (i == 0 || s->piece[i].part.device != s->piece[i - 1].part.device)
            status = choir__replicas_fill(r, s->piece[i].part.device, from);
    return status;
}

static choir_tensor *run_pieces(choir_shards *s)
{
    choir__replicas *r = &s->dp->replicas;
    choir_tensor *bad = NULL;
    choir_status status = fill_replicas(s);
    if (status != CHOIR_OK)
        return choir__poison(s->scope, status, "%s", choir__message());
    for (int i = 0; i < s->count && !bad; i++) {
        choir__batch_piece *p = &s->piece[i];
        int d = p->part.device;
        choir__replicas_bind(r, d);
        p->out = choir_forward_n(s->dp->module, p->in, s->in_count);
        choir__replicas_bind(r, 0);
        bad = check_result(s, p, "replica");
        if (i == 0 && d != 0 && s->dp->module->training) /* piece 0 updates the statistics */
            choir__replicas_take_buffers(r, d);
    }
    choir__replicas_were_read(r);
    return bad;
}

choir_shards *choir_parallel_apply(choir_module *module, choir_shards *in)
{
    module = choir__module_for(NULL, module, __func__);
    choir__data_parallel *dp = choir__data_parallel_of(module);
    choir_tensor *bad = choir__file_shards_unsound(in, __func__);
    if (bad)
        return choir__file_shards_failed(bad);
    if (in->poisoned)
        return in;
    if (dp != in->dp)
        return choir__file_shards_failed(choir__poison(in->scope, CHOIR_ERR_ARGUMENT,
            "choir_parallel_apply: these pieces were scattered for another module"));
    choir_shards *s = choir__file_shards_copy(in);
    s->poisoned = run_pieces(s);
    return s;
}

choir_shards *choir_forward_shards(choir_module *module, choir_tensor *const *in, int count)
{
    module = choir__module_for(NULL, module, __func__);
    choir__module_ready(module);
    choir_shards *s = choir_scatter(in, count, module);
    return s->poisoned ? s : choir_parallel_apply(module, s);
}

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__data_parallel *dp = (choir__data_parallel *)self;
    choir_shards *s = choir_forward_shards(self, in, count);
    choir_tensor *y = choir_gather(s, NULL, dp->dim);
    if (y->poisoned)
        return y;
    if (!y->requires_grad)
        choir__pieces_close(s);
    for (int i = 0; i < s->count; i++)
        choir__done_with(s->piece[i].out);
    return y;
}

/* --- the criterion --- */

choir_tensor *choir_criterion_parallel(
    choir_shards *out, choir_tensor *target, choir_criterion_fn *fn, void *arg)
{
    CHOIR__DEFAULT_FLOATS;
    choir_tensor *unusable = choir__file_shards_unsound(out, __func__);
    if (unusable)
        return unusable;
    if (!fn)
        return choir__poison_missing(out->scope, __func__, "fn");
    target = target ? choir__sound(target, __func__) : NULL;
    if (out->poisoned)
        return out->poisoned;
    choir_shards *s = choir__file_shards_copy(out);
    choir_tensor *bad = NULL;
    if (target && (target->poisoned || target->freed))
        return target->poisoned ? target
                                : choir__poison(s->scope, CHOIR_ERR_STATE,
                                      "criterion: backward has freed the target");
    if (target && choir__is_dealt(s, target) && target->shape.dim[s->dp->dim] != s->batch)
        return choir__poison(s->scope, CHOIR_ERR_SHAPE,
            "data_parallel: a target of %lld samples, %s, for a batch of %lld",
            (long long)target->shape.dim[s->dp->dim], choir__shape_text(target->shape),
            (long long)s->batch);
    for (int i = 0; i < s->count && !bad; i++) {
        choir__batch_piece *p = &s->piece[i];
        double share = (double)p->part.length * s->count / (double)s->batch;
        choir_tensor *y = target ? choir__piece_of(s, p, target) : NULL;
        p->out = fn(p->out, y, arg);
        bad = check_result(s, p, "criterion");
        if (!bad && p->out->count != 1)
            bad = choir__poison(s->scope, CHOIR_ERR_SHAPE,
                "data_parallel: expected one value per piece from the criterion, got %s on "
                "%s",
                choir__shape_text(p->out->shape), choir_device_name(p->scope->device));
        if (!bad && p->out->shape.ndim)
            p->out = choir_reshape(p->out, CHOIR_SCALAR);
        if (!bad && p->part.length * s->count != s->batch)
            p->out = choir_scale(p->out, share);
    }
    return bad ? bad : choir_gather(s, NULL, 0);
}

/* --- construction --- */

static const choir_module_class plain = {
    "data_parallel", sizeof(choir__data_parallel), forward, 0};
static const choir_module_class balanced = {
    "data_parallel_balanced", sizeof(choir__data_parallel), forward, 0};

static void close_data_parallel(void *arg)
{
    choir__data_parallel *dp = arg;
    choir__replicas_free(&dp->replicas);
    free(dp->weights);
}

static choir_status check_opts(const choir_data_parallel_opts *o, int count)
{
    double sum = 0;
    if (o->dim < 0 || o->dim >= CHOIR_MAX_DIMS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "data_parallel: expected a dim from 0 to %d, got %d", CHOIR_MAX_DIMS - 1, o->dim);
    if (o->pieces < 0 || o->pieces > INT32_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "data_parallel: expected a number of pieces, or 0, got %lld", (long long)o->pieces);
    for (int i = 0; o->weights && i < count; i++) {
        if (!(o->weights[i] >= 0 && isfinite(o->weights[i])))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "data_parallel: expected a finite weight of at least 0 for device %d, got "
                "%g",
                i, o->weights[i]);
        sum += o->weights[i];
    }
    if (o->weights && !(sum > 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "data_parallel: no device has a weight above 0");
    return CHOIR_OK;
}

/* Finds the requested devices, or all of the run's kind, the run's device first. */
static choir_status find_devices(
    choir_scope *run, const choir_data_parallel_opts *o, choir_device **list, int count)
{
    int next = 0;
    for (int i = 0; i < count; i++) {
        char name[32];
        list[i] = o->devices ? o->devices[i] : run->device;
        if (!o->devices && i > 0) {
            next += next == run->device->index;
            snprintf(name, sizeof name, "%s:%d", run->device->kind, next++);
            list[i] = choir_device_find(name);
        }
        if (!list[i])
            return choir__error(CHOIR_ERR_DEVICE, "data_parallel: device %d of %d: %s", i,
                count, o->devices ? choir__missing_device() : choir__message());
        for (int k = 0; k < i; k++) {
            if (list[k] == list[i])
                return choir__error(CHOIR_ERR_DEVICE,
                    "data_parallel: %s is named twice, as device %d and device %d",
                    choir_device_name(list[i]), k, i);
            if (list[k]->far != list[i]->far) /* replicas read each other's values */
                return choir__error(CHOIR_ERR_DEVICE,
                    "data_parallel: %s cannot read %s's memory: take devices of one kind",
                    choir_device_name(list[list[k]->far ? i : k]),
                    choir_device_name(list[list[k]->far ? k : i]));
        }
    }
    return CHOIR_OK;
}

/* Makes a book for this module's parameters only, which receives the gradients. */
static void take_over(choir__data_parallel *dp)
{
    choir__replicas *r = &dp->replicas;
    choir__param **params = choir__calloc((size_t)r->params + 1, sizeof(choir__param *));
    for (int i = 0; i < r->params; i++) {
        params[i] = r->replica[0].tensor[i]->param;
        if (params[i]->book)
            choir__book_free(params[i]->book);
    }
    dp->book = r->replica[0].book =
        choir__book_new(dp->base.run, r->replica[0].device, params, r->params);
    dp->book->reducer = dp;
    dp->book->reducer_ops = choir__data_parallel_ops.reducer;
    free(params);
}

static choir_status set_up(choir__data_parallel *dp, choir_data_parallel_opts o)
{
    choir_scope *run = dp->base.run;
    int all = choir_device_count(run->device->kind);
    int count = o.device_count ? o.device_count : all;
    if (count < 1 || (o.devices && !o.device_count))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "data_parallel: expected a device_count that is the number of devices, got %d",
            o.device_count);
    choir_status status = check_opts(&o, count);
    if (status == CHOIR_OK)
        status = choir__module_refuse_f64(dp->module, "data_parallel");
    if (status != CHOIR_OK)
        return status;
    choir_device **list = choir__calloc((size_t)count, sizeof *list);
    status = find_devices(run, &o, list, count);
    if (status == CHOIR_OK)
        status = choir__replicas_open(&dp->replicas, dp->module, list, count);
    dp->dim = o.dim;
    dp->pieces = o.pieces;
    dp->output = o.output_device ? o.output_device : list[0];
    free(list);
    if (status != CHOIR_OK)
        return status;
    if (o.weights) {
        dp->weights = choir__calloc((size_t)count, sizeof *dp->weights);
        memcpy(dp->weights, o.weights, (size_t)count * sizeof *dp->weights);
    }
    choir__scope_uses(run, dp->output); /* before a step is recorded */
    for (int d = 0; d < count; d++)
        choir__scope_uses(run, dp->replicas.replica[d].device);
    take_over(dp);
    return CHOIR_OK;
}

static choir_module *wrap(const choir_module_class *type, choir_scope *run,
    choir_module *module, choir_data_parallel_opts opts)
{
    choir__data_parallel *dp = choir_module_new(run, type);
    dp->strategy = (choir__strategy){.ops = &choir__data_parallel_ops, .places = true};
    dp->base.inside->strategy = &dp->strategy;
    choir__strategy_join(&dp->strategy, run);
    choir__module_ready(module); /* names are the module's own, without a prefix */
    choir_module_child(&dp->base, "", &dp->module, module);
    choir__on_close(run, close_data_parallel, dp);
    choir_status status = choir__scope_status(run);
    if (status == CHOIR_OK)
        status = set_up(dp, opts);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return &dp->base;
}

choir_module *choir_data_parallel(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    return wrap(&plain, run, module, opts);
}

choir_module *choir_data_parallel_balanced(
    choir_scope *run, choir_module *module, choir_data_parallel_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    return wrap(&balanced, run, module, opts);
}
