/* Scatter: distributes tensors of a batch as pieces over several devices.
 *
 * Each piece has its own scope, a micro-batch of the batch's scope, so no tape spans pieces.
 * Inputs are leaves in that scope, and views of the batch if the device is the same. */
#include "parallel/shards.h"

#include <stdlib.h>
#include <string.h>

#include "nn/module.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

/* Returns an error if there are no shards or their scope is closed. */
static choir_status check_shards(const choir_shards *s, const char *function)
{
    return choir__use_part(s ? s->scope : NULL, function, "list of shards");
}

choir_tensor *choir__file_shards_unsound(const choir_shards *s, const char *function)
{
    choir_status status = check_shards(s, function);
    return status == CHOIR_OK ? NULL : choir__lost_run(status)->run->lost;
}

int choir_shards_count(const choir_shards *s)
{
    return check_shards(s, __func__) == CHOIR_OK ? s->count : 0;
}

choir_tensor *choir_shards_at(const choir_shards *s, int i)
{
    choir_tensor *bad = choir__file_shards_unsound(s, __func__);
    if (bad || (bad = s->poisoned))
        return bad;
    if (i < 0 || i >= s->count)
        return choir__poison(s->scope, CHOIR_ERR_ARGUMENT,
            "data_parallel: expected a piece from 0 to %d, got %d", s->count - 1, i);
    return s->piece[i].out ? s->piece[i].out : s->piece[i].in[0];
}

choir_shards *choir__file_shards_failed(choir_tensor *poisoned)
{
    choir_shards *s = choir__arena_get(&poisoned->scope->handles, sizeof *s);
    *s = (choir_shards){.scope = poisoned->scope, .poisoned = poisoned};
    return s;
}

choir_shards *choir__file_shards_copy(const choir_shards *from)
{
    choir_shards *s = choir__arena_get(&from->scope->handles, sizeof *s);
    *s = *from;
    s->piece = choir__arena_get(&s->scope->arena, (size_t)s->count * sizeof *s->piece);
    memcpy(s->piece, from->piece, (size_t)s->count * sizeof *s->piece);
    return s;
}

choir_tensor *choir__piece_failed(
    const choir_shards *s, const choir__batch_piece *p, const char *did, choir_status status)
{
    const choir_module *m = s->dp->module;
    char *why = choir__strdup(
        status == CHOIR_OK ? "it gave a result that was never computed" : choir__message());
    choir_tensor *bad = choir__poison(s->scope, status == CHOIR_OK ? CHOIR_ERR_STATE : status,
        "data_parallel: %s of module '%s' on %s (samples %lld to %lld): %s", did,
        *m->path ? m->path : m->type->name, choir_device_name(p->scope->device),
        (long long)p->part.start, (long long)(p->part.start + p->part.length - 1), why);
    free(why);
    return bad;
}

/* --- parts of tensors --- */

void choir__move_values(choir_tensor *y, choir_tensor *x)
{
    if (y->count == 0)
        return;
    if (choir__device_of(x) == choir__device_of(y))
        choir__launch_copy(y, x);
    else
        choir__copy_across(y, x);
}

bool choir__is_dealt(const choir_shards *s, const choir_tensor *x)
{
    return x->shape.ndim > s->dp->dim;
}

choir_tensor *choir__piece_of(
    const choir_shards *s, const choir__batch_piece *p, choir_tensor *x)
{
    choir_tensor *part = choir__is_dealt(s, x) ? choir__tensor_part(p->scope, x, s->dp->dim,
                                                     p->part.start, p->part.length)
                                               : choir__tensor_alias(p->scope, x);
    choir_device *device = p->scope->device;
    if (choir__device_of(x) != device) {
        choir_tensor *there = choir__tensor_bare(p->scope, x->dtype, part->shape);
        if (choir__is_dense(part))
            memcpy(there->stride, part->stride, sizeof there->stride);
        if (choir__tensor_allocate(there, device))
            choir__copy_across(there, part);
        choir__tensor_release(part);
        part = there;
    }
    part->requires_grad = x->requires_grad && p->scope->grad;
    return part;
}

/* --- scatter --- */

static void close_pieces(void *arg)
{
    choir__piece_scopes *p = arg;
    while (p->open)
        choir__scope_end(p->scope[--p->open]);
}

void choir__pieces_close(choir_shards *s)
{
    close_pieces(s->scopes);
    s->count = 0;
}

/* Finds the batch's size. Returns false, with an error of the scope, if the inputs have no
 * batch. */
static bool measure(choir_shards *s)
{
    const choir_tensor *first = NULL;
    int dim = s->dp->dim;
    for (int k = 0; k < s->in_count; k++) {
        const choir_tensor *x = s->in[k];
        if (!x || !choir__is_dealt(s, x))
            continue;
        if (first && x->shape.dim[dim] != first->shape.dim[dim]) {
            s->poisoned = choir__poison(s->scope, CHOIR_ERR_SHAPE,
                "data_parallel: inputs of %lld and %lld samples, %s and %s; dimension %d of all "
                "must be the batch's",
                (long long)first->shape.dim[dim], (long long)x->shape.dim[dim],
                choir__shape_text(first->shape), choir__shape_text(x->shape), dim);
            return false;
        }
        first = first ? first : x;
    }
    s->batch = first ? first->shape.dim[dim] : 0;
    if (s->batch > 0)
        return true;
    s->poisoned =
        first ? choir__poison(s->scope, CHOIR_ERR_SHAPE,
                    "data_parallel: a batch of 0 samples, %s", choir__shape_text(first->shape))
              : choir__poison(s->scope, CHOIR_ERR_SHAPE,
                    "data_parallel: no input has a dimension %d to be split along", dim);
    return false;
}

static void open_piece(choir_shards *s, choir__batch_piece *p, int64_t index)
{
    choir__data_parallel *dp = s->dp;
    p->scope = choir_micro_open(s->scope, index);
    p->scope->device = dp->replicas.replica[p->part.device].device;
    p->scope->piece = true;
    choir__scope_uses(s->scope, p->scope->device);
    p->in = choir__arena_get(&s->scope->arena, (size_t)s->in_count * sizeof(choir_tensor *));
    for (int k = 0; k < s->in_count; k++)
        p->in[k] = s->in[k] ? choir__piece_of(s, p, s->in[k]) : NULL;
}

static void deal(choir_shards *s)
{
    choir__data_parallel *dp = s->dp;
    int devices = dp->replicas.devices;
    int64_t most = choir__split_most(s->batch, dp->pieces, devices);
    choir__batch_share *part = choir__arena_get(&s->scope->arena, (size_t)most * sizeof *part);
    s->count = (int)choir__split(s->batch, dp->pieces, devices, dp->weights, part);
    s->piece = choir__arena_get(&s->scope->arena, (size_t)s->count * sizeof *s->piece);
    s->scopes = choir__arena_get(
        &s->scope->arena, sizeof *s->scopes + (size_t)s->count * sizeof s->scopes->scope[0]);
    /* If the batch is one of several micro-batches, its pieces are numbered among all of
     * theirs. */
    int64_t first = s->scope->micro * (dp->pieces ? dp->pieces : devices);
    for (int i = 0; i < s->count; i++) {
        s->piece[i] = (choir__batch_piece){.part = part[i]};
        open_piece(s, &s->piece[i], first + i);
        s->scopes->scope[s->scopes->open++] = s->piece[i].scope;
    }
    choir__on_close(s->scope, close_pieces, s->scopes);
}

choir__data_parallel *choir__data_parallel_of(choir_module *module)
{
    if (module->inside->strategy && module->inside->strategy->ops == &choir__data_parallel_ops)
        return (choir__data_parallel *)module;
    choir__error(CHOIR_ERR_ARGUMENT, "data_parallel: module '%s' is a %s, not a data_parallel",
        *module->path ? module->path : module->type->name, module->type->name);
    return NULL;
}

static const choir__op scatter_op = {
    .name = "data_parallel", .any_dtype = true, .optional = ~1u};

choir_shards *choir_scatter(choir_tensor *const *in, int count, choir_module *module)
{
    module = choir__module_for(NULL, module, __func__);
    choir__data_parallel *dp = choir__data_parallel_of(module);
    choir_tensor *poisoned, *x[CHOIR__MAX_IN];
    if (!in)
        return choir__file_shards_failed(
            choir__poison_missing(module->run, __func__, "inputs"));
    if (!dp || count < 1 || count >= CHOIR__MAX_IN)
        return choir__file_shards_failed(
            dp ? choir__poison(module->run, CHOIR_ERR_ARGUMENT,
                     "data_parallel: %d inputs; from 1 to %d", count, CHOIR__MAX_IN - 1)
               : choir__poison(module->run, CHOIR_ERR_ARGUMENT, "%s", choir__message()));
    memcpy(x, in, (size_t)count * sizeof *x);
    choir_scope *scope = choir__begin(&scatter_op, x, count, &poisoned);
    if (!scope)
        return choir__file_shards_failed(poisoned);
    if (scope->kind == CHOIR__RUN)
        return choir__file_shards_failed(choir__poison(scope, CHOIR_ERR_SCOPE,
            "data_parallel: inputs of the run alone have no step to live in; lift one with "
            "choir_in"));
    choir_shards *s = choir__arena_get(&scope->handles, sizeof *s);
    *s = (choir_shards){.dp = dp, .scope = scope, .in_count = count};
    s->in = choir__arena_get(&scope->arena, (size_t)count * sizeof(choir_tensor *));
    memcpy(s->in, x, (size_t)count * sizeof(choir_tensor *));
    if (choir__scope_status(scope) != CHOIR_OK) {
        s->poisoned = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
        s->poisoned->poisoned = true;
    } else if (measure(s)) {
        deal(s);
    }
    return s;
}
