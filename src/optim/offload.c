/* Optimizer state outside the device's pool (device/offload_store.h): in a file, if
 * choir_optim_offload has asked for that, else where a parameter lies that is outside itself.
 *
 * From a file, the state is in the process's memory only during the update. After the update of
 * a run of parameters, a task in the device's queue lets its pages go, and the pages of
 * parameters and gradients in the same file:
 *
 *     device   | update 32 MiB of state | release | update the next | release | ...
 *
 * The next step reads them back, from the page cache if they are still in it. */
#include <stdlib.h>
#include <string.h>

#include "device/offload_store.h"
#include "optim/optim.h"

enum { PAGE = CHOIR__OUTSIDE_PAGE, TOGETHER = 32 << 20 /* bytes updated together */ };

choir_status choir_optim_offload(choir_optim *o, const char *folder)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!folder)
        return choir__missing(__func__, "folder");
    if (o->offload.store || o->steps)
        return choir__error(CHOIR_ERR_STATE,
            "the optimizer's state has a place already: offload it once, before the first step");
    if (o->rule.coded || o->rule.kind == CHOIR__ADAFACTOR || o->rule.kind == CHOIR__MUON)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "8-bit state, and that of adafactor and muon, stays in memory: no --offload of it");
    for (int i = 0; i < o->count; i++)
        if (o->states[i].m || o->states[i].v)
            return choir__error(CHOIR_ERR_STATE,
                "the optimizer has state of '%s' already: offload it before it is restored",
                o->states[i].param->name);
    choir_status status =
        choir__offload_store_new(folder, "optimizer state", &o->offload.store);
    o->offload.whole = status == CHOIR_OK;
    return status;
}

/* Returns the place outside the pool for state like param's, or NULL. */
static choir__offload_store *place_of(const choir_optim *o, const choir_tensor *param)
{
    return o->offload.whole ? o->offload.store
           : param->storage ? param->storage->outside
                            : NULL;
}

static size_t room(const choir_tensor *t)
{
    return ((size_t)t->count * sizeof(float) + PAGE - 1) / PAGE * PAGE;
}

/* Returns the bytes of the state of all parameters whose state goes to the place, in this
 * process. */
static size_t all_state(const choir_optim *o, const choir__offload_store *place, int each)
{
    size_t bytes = 0;
    for (int i = 0; i < o->count; i++) {
        const choir_tensor *t = o->states[i].param->local;
        if (place_of(o, t) == place && !choir__device_of(t)->away)
            bytes += (size_t)each * room(t);
    }
    return bytes;
}

/* Takes one piece for all state; later ones for parameters that came from another stage. */
static choir_status take_piece(
    choir_optim *o, choir__offload_store *place, const choir_device *device, size_t bytes)
{
    choir__optim_piece *p = choir__arena_get(&o->run->arena, sizeof *p);
    if (!o->offload.store)
        o->offload.store = choir__offload_store_ref(place);
    choir_status status =
        choir__offload_store_get(place, device, bytes, "the optimizer's state", &p->at);
    if (status != CHOIR_OK)
        return status;
    *p = (choir__optim_piece){p->at, o->offload.pieces};
    o->offload.pieces = p;
    o->offload.bytes = bytes;
    o->offload.used = 0;
    return CHOIR_OK;
}

choir_tensor *choir__offload_tensor(choir_optim *o, const choir_tensor *param, int each)
{
    choir__offload_store *place = place_of(o, param);
    choir_device *device = choir__device_of(param);
    choir_status status = CHOIR_OK;
    if (!place || device->away)
        return NULL;
    if (!o->offload.pieces)
        status = take_piece(o, place, device, all_state(o, place, each));
    else if (o->offload.used + room(param) > o->offload.bytes)
        status = take_piece(o, place, device, room(param));
    if (status != CHOIR_OK) {
        choir__scope_fail(o->run, status);
        return choir__tensor_like(o->run, param);
    }
    choir_tensor *t = choir__tensor_bare(o->run, CHOIR_F32, param->shape);
    memcpy(t->stride, param->stride, sizeof t->stride);
    t->storage = choir__storage_outside(device, place,
        (char *)o->offload.pieces->at + o->offload.used, (size_t)t->count * sizeof(float));
    o->offload.used += room(param);
    return t; /* a piece is new: zeros */
}

void choir__offload_free(choir_optim *o)
{
    for (const choir__optim_piece *p = o->offload.pieces; p; p = p->next)
        choir__offload_store_put(o->offload.store, p->at);
    choir__offload_store_unref(o->offload.store);
    o->offload.store = NULL;
    o->offload.pieces = NULL;
}

/* --- letting go --- */

bool choir__offload_runs(const choir_optim *o)
{
    return o->offload.store && choir__offload_store_is_file(o->offload.store);
}

int choir__offload_run(const choir__optim_part *part, int first)
{
    size_t bytes = 0;
    int count = 0;
    while (first + count < part->entry_count && (!count || bytes < TOGETHER)) {
        const choir__opt_entry *e = &part->table[first + count++];
        bytes += (size_t)e->n * sizeof(float) * (size_t)(!!e->m + !!e->v + !!e->top);
    }
    return count;
}

void choir__offload_let_go(
    const choir_optim *o, const choir__optim_part *part, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        const choir__opt_entry *e = &part->table[i];
        const void *at[CHOIR__OUTSIDE_PARTS] = {e->m, e->v, e->top, e->param, e->grad};
        choir__offload_store_let_go(
            o->offload.store, part->device->queue, at, (size_t)e->n * sizeof(float));
    }
}
