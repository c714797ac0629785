/* The dry devices of a rank that is rehearsed, and their counts. */
#include <stdio.h>

#include "device/dry/dry.h"
#include "job/rehearsal/rehearsal.h"

/* Losses and norms read as a number that stops nothing. */
static const double stand_in = 1;

int choir__rehearsal_devices(const choir__job_placement *p)
{
    const choir__composition *c = &p->composition;
    return p->strategy->spread == CHOIR__ALL_DEVICES ? p->device_count
           : choir__composition_inside(c)            ? c->dims[c->count - 1].size
                                                     : 1;
}

choir_device *choir__rehearsal_device(const choir__job *job, int rank, int i)
{
    char name[32];
    snprintf(name, sizeof name, "dry:%d", rank * choir__rehearsal_devices(&job->placement) + i);
    choir_device *device = choir_device_find(name);
    if (!device || choir_dry_restart(device) != CHOIR_OK ||
        choir_dry_stand_in(device, stand_in) != CHOIR_OK)
        return NULL;
    if (job->placement.rehearsal->holds)
        choir__dry_note(device);
    return device;
}

choir_status choir__rehearsal_note(choir__rehearsal *r, const choir__job_rank *part)
{
    choir_status status = CHOIR_OK;
    r->parameters = choir_module_param_count(part->net);
    choir__rehearsal_record(r, part);
    for (int i = 0; i < r->each && status == CHOIR_OK; i++)
        status =
            choir_dry_count(part->devices[i], &r->devices[part->env.rank * r->each + i].counts);
    return status;
}
