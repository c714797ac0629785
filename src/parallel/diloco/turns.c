/* Turns: the workers of a rank have one module and one optimizer, one after another.
 *
 * Between two meetings workers have other weights, and always other optimizer states. While a
 * worker waits, a set holds its values; a turn exchanges the storages of the module's tensors,
 * and the state inside the optimizer, with a set. Nothing is copied, and a step of all turns
 * can be recorded: each turn's kernels have their own addresses, and the exchange is a host
 * call, which replays repeat.
 *
 *     step    | turn 0: forward, backward, update | turn 1: ...           | meet?
 *     module    weights and buffers of worker 4     those of worker 5       those of worker 4
 *     sets      [ - | worker 5 ]                    [ worker 4 | - ]        [ - | worker 5 ]
 *
 * Between steps the first worker has the module, so that rank 0 shows worker 0. */
#include "parallel/diloco/diloco.h"

#include <stdlib.h>

#include "tensor/launch.h"

/* --- sets --- */

/* Allocates values like the module's tensors for the worker of a turn. */
static bool make_values(const choir__diloco *w, choir__worker_set *set)
{
    set->values = choir__calloc((size_t)w->tensor_count + 1, sizeof *set->values);
    for (int i = 0; i < w->tensor_count; i++) {
        const choir__storage *own = w->tensors[i]->storage;
        if (!(set->values[i] = choir__storage_new(own->device, own->bytes)))
            return false;
        choir__storage_holds_as(set->values[i], own);
    }
    return true;
}

choir_status choir__diloco_make_sets(choir__diloco *w)
{
    w->sets = choir__calloc((size_t)w->here, sizeof *w->sets);
    w->turns = choir__calloc((size_t)w->here, sizeof *w->turns);
    w->sets[0].values = choir__calloc((size_t)w->tensor_count + 1, sizeof *w->sets[0].values);
    for (int i = 0; i < w->here; i++) {
        w->turns[i] = (choir__worker_turn){w, i};
        if (i && !make_values(w, &w->sets[i]))
            return choir__error(CHOIR_ERR_MEMORY,
                "out of memory on %s for the weights of %d workers",
                choir_device_name(w->base.run->device), w->here);
    }
    choir__diloco_spread(w, 0);
    return CHOIR_OK;
}

void choir__diloco_free_sets(choir__diloco *w)
{
    for (int i = 0; i < w->here && w->sets; i++) {
        for (int k = 0; k < w->tensor_count && w->sets[i].values; k++)
            choir__storage_unref(w->sets[i].values[k]);
        free(w->sets[i].values);
        choir__optim_set_free(w->sets[i].optim);
    }
    free(w->sets);
    free(w->turns);
}

void *choir__diloco_values(const choir__diloco *w, int turn, int index)
{
    const choir_tensor *t = w->tensors[index];
    size_t offset = (size_t)t->offset * choir_dtype_size(t->dtype);
    return turn == w->shown ? choir__data(t)
                            : (char *)w->sets[turn].values[index]->data + offset;
}

/* --- the optimizer --- */

choir_status choir__diloco_have(choir__diloco *w, choir_optim *optim, choir_scaler *scaler)
{
    choir_scope *run = w->base.run;
    w->optim = optim;
    w->scaler = scaler;
    w->counted = choir_full(run, CHOIR_I64, CHOIR_SCALAR, (double)w->count);
    if (scaler && !optim->norm.value)
        choir_optim_clip(optim, 0); /* where skipped steps are counted */
    for (int i = 0; i < w->here; i++) {
        if (i)
            w->sets[i].optim = choir__optim_set_new(optim);
        if (scaler)
            w->sets[i].scale = choir_full(run, CHOIR_F32, choir_dims(CHOIR__SCALER_KEPT), 0);
        if (scaler && choir__scope_status(run) == CHOIR_OK)
            choir__scaler_keep(scaler, optim, w->sets[i].scale);
    }
    return choir__scope_status(run);
}

/* --- exchange --- */

static void exchange_values(choir__diloco *w, int turn)
{
    for (int i = 0; i < w->tensor_count; i++) {
        choir_tensor *t = w->tensors[i];
        choir__storage *out = t->storage, *in = w->sets[turn].values[i];
        in->version = out->version + 1; /* copies of the one's values are not of the other's */
        t->storage = in;
        w->sets[w->shown].values[i] = out;
        w->sets[turn].values[i] = NULL;
    }
}

void choir__diloco_show(choir__diloco *w, int turn)
{
    choir__worker_set *out = &w->sets[w->shown], *in = &w->sets[turn];
    if (turn == w->shown)
        return;
    if (w->scaler)
        choir__scaler_keep(w->scaler, w->optim, out->scale);
    exchange_values(w, turn);
    if (w->optim) {
        choir__optim_exchange(w->optim, in->optim);
        out->optim = in->optim;
        in->optim = NULL;
    }
    if (w->scaler)
        choir__scaler_bring(w->scaler, w->optim, in->scale);
    w->shown = turn;
}

static choir_status begin_turn(void *arg)
{
    const choir__worker_turn *t = arg;
    choir__diloco *w = t->workers;
    if (!t->turn)
        w->optim_steps = w->optim->steps;
    choir__diloco_show(w, t->turn);
    w->optim->steps = w->optim_steps; /* all workers are in the same step */
    w->updated = false;
    return CHOIR_OK;
}

choir_status choir__diloco_take_turn(choir__diloco *w, int turn)
{
    return choir__host_call(begin_turn, &w->turns[turn]);
}

/* --- copies --- */

void choir__diloco_spread(choir__diloco *w, int from)
{
    for (int turn = 1; turn < w->here; turn++)
        for (int i = from; i < w->tensor_count; i++)
            choir__launch_bytes(w->base.run->device, w->sets[turn].values[i]->data,
                w->tensors[i]->storage->data, w->tensors[i]->storage->bytes);
}

void choir__diloco_spread_state(choir__diloco *w)
{
    if (w->scaler)
        choir__scaler_keep(w->scaler, w->optim, w->sets[0].scale);
    for (int turn = 1; turn < w->here && w->optim; turn++) {
        choir__optim_set_copy(w->optim, w->sets[turn].optim);
        if (w->scaler)
            choir__launch_copy(w->sets[turn].scale, w->sets[0].scale);
    }
}
