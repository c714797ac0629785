/* Hashes in the update's pass, for an audit: the kernel reads a parameter, its gradient and its
 * state, and writes them, and so it takes their hashes while they are in the cache. They are
 * the sums that hash kernels of their own would give (device/kernels/hash.h).
 *
 * The sums stay at one place until the optimizer is freed, because recorded steps have their
 * addresses. The host sets them to zero between two steps, and whether a step takes hashes goes
 * to the devices with its learning rate, in queue order. */
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

void choir__optim_hashes_open(choir_optim *o)
{
    if (o->sums)
        return;
    o->sums = choir__calloc((size_t)o->count + 1, sizeof *o->sums);
    o->layout = 0; /* the tables get their addresses */
}

void choir__optim_hashes_begin(choir_optim *o, bool taken)
{
    o->hashes = taken && o->sums;
    if (!o->hashes)
        return;
    (void)!choir__run_sync(o->run);
    memset(o->sums, 0, (size_t)o->count * sizeof *o->sums);
    for (int i = 0; i < o->count; i++)
        o->sums[i].at = -1;
}

bool choir__optim_hashes_fit(const choir_optim *o, const choir__optim_state *s)
{
    const choir_tensor *t = s->param->local;
    bool one_pass = o->rule.kind == CHOIR__SGD || o->rule.kind == CHOIR__ADAM ||
                    o->rule.kind == CHOIR__LION || o->rule.kind == CHOIR__RMSPROP;
    return o->sums && one_pass && !o->rule.coded && t->dtype == CHOIR_F32 && t->storage &&
           !choir__device_of(t)->far;
}

/* Returns what the numbers at x are to a parameter, or CHOIR__OPT_READ. */
static choir__opt_of of_what(const choir__optim_state *s, const void *x)
{
    const choir_tensor *all[] = {
        [CHOIR__OPT_PARAM] = s->param->local,
        [CHOIR__OPT_M] = s->m,
        [CHOIR__OPT_V] = s->v,
        [CHOIR__OPT_TOP] = s->top,
    };
    for (int of = 0; of < CHOIR__OPT_LEFT; of++)
        if (all[of] && all[of]->storage && choir__data(all[of]) == x)
            return (choir__opt_of)of;
    return choir__param_grad_data(s->param) == x ? CHOIR__OPT_GRAD : CHOIR__OPT_READ;
}

choir__opt_sums *choir__optim_hashes_of(
    const choir_optim *o, const void *x, int64_t n, int *near, choir__opt_of *of)
{
    for (int k = 0; k < o->count; k++) {
        int i = (*near + k) % o->count;
        const choir__optim_state *s = &o->states[i];
        if (!choir__optim_hashes_fit(o, s) || s->param->local->count != n)
            continue;
        *of = of_what(s, x);
        if (*of == CHOIR__OPT_READ)
            continue;
        *near = i;
        return &o->sums[i];
    }
    return NULL;
}
