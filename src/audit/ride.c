/* Hashes that ride in the optimizer's pass: it reads and writes a parameter and its state, and
 * reads the gradient, so their hashes cost no memory traffic, and the factor of a place is
 * computed once for all of them (optim/hashes.c).
 *
 *     step begins   places are set; parts of its inputs wait for their hashes
 *     the update    takes hashes of its operands and results
 *     step done     both are fetched
 *
 * An update that a scaler has skipped leaves all numbers as they were: their hashes are taken
 * when the step is done. */
#include "audit/parts.h"

#include <stdlib.h>

bool choir__audit_rides(choir__audit_ride *r, choir__audit_parts *parts, int part,
    choir_device *device, const choir__k_hash *call)
{
    choir__opt_of of;
    choir__opt_sums *sums =
        r && call->rows == 1 && call->dtype == CHOIR_F32
            ? choir__optim_hashes_of(r->optim, call->x, call->cols, &r->near, &of)
            : NULL;
    if (!sums)
        return false;
    if (!r->done && of == CHOIR__OPT_PARAM)
        sums->at = call->at;
    if (sums->at != call->at || (r->done && sums->counted != call->cols))
        return false;
    if (r->done) {
        bool state = of > CHOIR__OPT_PARAM && of < CHOIR__OPT_LEFT;
        if (r->fresh && state && sums->read[of])
            r->stained = part;
        parts->list[part].hash += of == CHOIR__OPT_GRAD ? sums->read[of] : sums->left[of];
        return true;
    }
    CHOIR__GROW(r->list, r->count);
    r->list[r->count++] = (choir__audit_call){device, *call, part, sums, of};
    return true;
}

void choir__audit_ride_fetch(
    choir__audit_ride *r, choir__audit_parts *parts, choir__audit_call_fn *missed, void *arg)
{
    for (int i = 0; i < r->count; i++) {
        const choir__audit_call *c = &r->list[i];
        if (c->sums->at == c->args.at && c->sums->counted == c->args.cols)
            parts->list[c->part].hash += c->sums->read[c->of];
        else
            missed(arg, c);
    }
    r->count = 0;
}

const choir__audit_part *choir__audit_part_of(
    const choir__audit_parts *parts, int from, const choir__audit_part *like)
{
    for (int k = 0; k < parts->count; k++) {
        const choir__audit_part *p = &parts->list[(from + k) % parts->count];
        if (p->kind == like->kind && p->name == like->name && p->region == like->region)
            return p;
    }
    return NULL;
}
