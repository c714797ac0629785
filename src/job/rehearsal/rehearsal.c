/* Rehearsing a job: the trainer itself runs, with devices that compute nothing, for as many
 * steps as make everything once: steps that differ while things are made lazily, the recorded
 * one, one that is replayed, and a validation between two. What comes later repeats these. */
#include "job/rehearsal/rehearsal.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/dry/world.h"
#include "job/trainer/trainer.h"

enum {
    STEPS = 8,
    BATCHES = 2, /* in a validation; later ones are as large */
};

/* A validation comes between two steps, or never. */
static void shorten(choir__job_training *t, int64_t steps)
{
    if (t->eval_every && t->eval_every < t->steps && t->eval_every >= steps)
        t->eval_every = steps - 1;
    if (!t->eval_batches || t->eval_batches > BATCHES)
        t->eval_batches = BATCHES;
    t->steps = steps;
    t->patience = 0;
    t->max_time = t->on_spike = t->find_lr = NULL;
    t->debug_nan = false;
}

/* Nothing outside the process shows that it was there. */
static void silence(choir__job *j)
{
    /* with --json the norm of the gradients is taken in each step */
    const choir__job_records none = {
        .silent = true, .json = true, .log_every = j->records.log_every};
    const choir__job_saves nothing = {.keep = j->saves.keep};
    j->records = none;
    j->saves = nothing;
    j->model.weights = j->model.adapter = NULL;
    j->placement.max_restarts = 0;
    j->placement.shared = NULL;
}

/* Where values decide no size, no sample is read. Returns the blank data, or NULL. */
static choir_dataset *blank(choir_dataset **data)
{
    if (!*data || (*data)->x_dtype != CHOIR_F32 || choir_dataset_ignores(*data))
        return NULL;
    return *data = choir__rehearsal_blank(*data);
}

static choir_status run_rank(int rank, void *arg)
{
    int by;
    (void)rank;
    return choir__train_rank(arg, &by);
}

static void name_devices(choir__rehearsal *r, const choir__job_placement *p)
{
    const int all = p->device_count / r->each;
    for (int d = 0; d < r->world * r->each; d++)
        snprintf(r->devices[d].name, sizeof r->devices[d].name, "%s",
            p->device_names[d / r->each % choir__max(1, all) * r->each + d % r->each]);
}

choir_status choir__job_rehearse(const choir__job *job, choir__rehearsal *r)
{
    choir__job *own = choir__alloc(sizeof *own);
    *own = *job;
    *r = (choir__rehearsal){.world = job->placement.nproc,
        .each = choir__rehearsal_devices(&job->placement),
        .holds = r->holds,
        .steps = choir__min(job->training.steps, STEPS)};
    r->devices = choir__calloc((size_t)r->world * (size_t)r->each, sizeof *r->devices);
    name_devices(r, &job->placement);
    for (int rank = 0; rank < r->world; rank++)
        choir__step_add_program(&r->step, rank, 1);
    r->step.world = r->world;
    silence(own);
    shorten(&own->training, r->steps);
    own->placement.rehearsal = r;
    choir_dataset *blanks[] = {blank(&own->data.train), blank(&own->data.validation)};
    choir_status status = choir__dry_world_run(r->world, NULL, run_rank, own);
    choir_dataset_free(blanks[0]);
    choir_dataset_free(blanks[1]);
    free(own);
    return status;
}

void choir__rehearsal_free(choir__rehearsal *r)
{
    free(r->devices);
    choir__step_free(&r->step);
    *r = (choir__rehearsal){0};
}
