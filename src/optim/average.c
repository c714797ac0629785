/* Averages of the parameters over steps: exponential ones, and plain means (SWA). They are
 * state of the optimizer, updated by one kernel behind each step. The weight of a step follows
 * from its number alone, so a resumed training needs no counter. */
#include "optim/optim.h"
#include "tensor/launch.h"

choir_average_opts choir_average_defaults(void)
{
    return (choir_average_opts){.decay = 0.999f, .start = 1, .every = 1};
}

choir_status choir_optim_average(choir_optim *o, choir_average_opts opts)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!(opts.decay >= 0 && opts.decay < 1))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "averages of weights: expected a decay from 0 to below 1, got %g",
            (double)opts.decay);
    if (opts.start < 0 || opts.every < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "averages of weights: expected a start and an interval of 1 step or more, got %lld "
            "and %lld",
            (long long)opts.start, (long long)opts.every);
    for (int i = 0; i < o->count; i++)
        if (o->steps || o->states[i].m || o->states[i].v)
            return choir__error(CHOIR_ERR_STATE,
                "averages of weights: expected an optimizer before its first step");
    o->average.on = true;
    o->average.opts = opts;
    o->average.opts.start = opts.start ? opts.start : 1;
    o->average.opts.every = opts.every ? opts.every : 1;
    return CHOIR_OK;
}

float choir__optim_take(const choir_optim *o, int64_t steps)
{
    const choir_average_opts *a = &o->average.opts;
    int64_t since = steps + 1 - a->start;
    if (!o->average.on || since < 0 || since % a->every)
        return 0;
    int64_t before = since / a->every; /* steps that counted */
    return before == 0 ? 1 : a->decay > 0 ? 1 - a->decay : (float)(1 / ((double)before + 1));
}

void choir__optim_launch_average(const choir_optim *o)
{
    for (int i = 0; i < o->part_count && o->average.on; i++) {
        const choir__optim_part *part = &o->parts[i];
        choir__k_average args = {.entries = part->entries->data,
            .count = part->entry_count,
            .hyper = part->hyper->data};
        choir__launch(part->device, CHOIR_F32, average, &args);
    }
}

static void swap(choir_scope *scope, choir_tensor *param, choir_tensor *average)
{
    choir_tensor *copy = choir__tensor_like(scope, param);
    if (copy->poisoned)
        return;
    choir__launch_copy(copy, param);
    choir__storage_claim(param->storage);
    choir__launch_copy(param, average);
    choir__launch_copy(average, copy);
    param->storage->version++;
}

choir_status choir_optim_swap(choir_optim *o)
{
    choir_status use = choir__use_optim(o, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!o->average.on || o->steps < o->average.opts.start)
        return choir__scope_status(o->run);
    choir_scope *scope = choir_no_grad(o->run);
    for (int i = 0; i < o->count; i++) {
        const choir__param *p = o->states[i].param;
        if (choir__optim_is_idle(&o->states[i]))
            continue;
        choir__optim_make_state(o, &o->states[i]);
        if (!choir__device_of(p->local)->away && p->local->count)
            swap(scope, p->local, o->states[i].average);
        if (p->tensor->storage && p->tensor->storage != p->local->storage)
            p->tensor->storage->version++;
    }
    choir_status status = choir__scope_status(scope), closed = choir__scope_end(scope);
    o->average.swapped = !o->average.swapped;
    choir__strategies_updated(o->run);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__optim_unswap(choir_optim *o)
{
    o->average.swapped = true;
    choir_status status = choir_optim_swap(o);
    o->average.swapped = false; /* not swapped, also before the first step that counts */
    return status;
}
