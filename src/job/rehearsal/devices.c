/* The dry devices of a rank that is rehearsed, and their counts. */
#include <stdio.h>
#include <stdlib.h>

#include "autograd/book.h"
#include "data/dataset.h"
#include "device/dry/dry.h"
#include "job/rehearsal/rehearsal.h"
#include "nn/module.h"

/* Losses and norms read as a number that stops nothing. */
static const double stand_in = 1;

choir_device *choir__rehearsal_device(const choir__job_placement *p, int rank, int i)
{
    char name[32];
    const choir__rehearsal *r = p->rehearsal;
    const int number = r->class_of[rank] * r->each + i;
    snprintf(name, sizeof name, "dry:%d", number);
    choir_device *device = choir_device_find(name);
    if (!device || choir_dry_restart(device) != CHOIR_OK ||
        choir_dry_stand_in(device, stand_in) != CHOIR_OK)
        return NULL;
    choir__dry_stands_for(device, r->devices[number].name);
    if (r->holds)
        choir__dry_note(device);
    return device;
}

/* Notes the numbers of rows that are cut over ranks, each once. */
static void note_rows(choir__rehearsal *r, choir_module *net)
{
    int count;
    choir__param **params = choir__module_named_params(net, &count);
    for (int i = 0; i < count; i++) {
        const choir_shape *shape = &params[i]->tensor->shape;
        const int64_t rows = shape->ndim ? shape->dim[0] : 1;
        bool known = params[i]->local == params[i]->tensor;
        for (int k = 0; k < r->row_count && !known; k++)
            known = r->rows[k] == rows;
        if (known)
            continue;
        CHOIR__GROW(r->rows, r->row_count);
        r->rows[r->row_count++] = rows;
    }
    free(params);
}

choir_status choir__rehearsal_note(choir__rehearsal *r, const choir__job_rank *part)
{
    choir_status status = CHOIR_OK;
    choir__rehearsed_device *own = &r->devices[r->class_of[part->env.rank] * r->each];
    if (r->scouting) {
        note_rows(r, part->net);
        return CHOIR_OK;
    }
    r->parameters = choir_module_param_count(part->net);
    choir__rehearsal_record(r, part);
    own[0].staged = choir__loader_staged(part->loader);
    for (int i = 0; i < r->each && status == CHOIR_OK; i++)
        status = choir_dry_count(part->devices[i], &own[i].counts);
    for (int i = 0; i < r->each && status == CHOIR_OK; i++)
        status = choir__rehearsal_note_parts(r, part->devices[i], (int)(own - r->devices) + i);
    return status;
}
