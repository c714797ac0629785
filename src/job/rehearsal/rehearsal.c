/* Rehearsing a job: the trainer itself runs, with devices that compute nothing, for as many
 * steps as make everything once: steps that differ while things are made lazily, the recorded
 * one, one that is replayed, and a validation between two. What comes later repeats these. */
#include "job/rehearsal/rehearsal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/dry/world.h"
#include "job/trainer/trainer.h"

enum { STEPS = 8 };

/* A validation comes between two steps, or never. It has `batches` batches; further ones are as
 * large. */
static void shorten(choir__job_training *t, int64_t steps, int64_t batches)
{
    if (t->eval_every && t->eval_every < t->steps && t->eval_every >= steps)
        t->eval_every = steps - 1;
    t->eval_batches = choir__max(batches, 1);
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
    j->ranks.max_restarts = 0;
    j->ranks.shared = NULL;
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

/* --- classes --- */

/* Writes the name of device i of a rank. Ranks may share devices. */
static void name_device(const choir__rehearsal *r, const choir__job_placement *p, int rank,
    int i, char name[CHOIR__JOB_DEVICE_NAME])
{
    const int all = choir__max(1, p->device_count / r->each);
    choir__job_device_name(p, rank % all * r->each + i, name);
}

static void name_devices(choir__rehearsal *r, const choir__job_placement *p)
{
    const int count = r->world * r->each;
    r->names = choir__calloc((size_t)count, sizeof *r->names);
    for (int d = 0; d < count; d++)
        name_device(r, p, d / r->each, d % r->each, r->names[d]);
}

/* Makes room for the counts and the programs of each class. */
static void make_room(choir__rehearsal *r, const choir__job_placement *p)
{
    r->device_count = r->classes * r->each;
    r->devices = choir__calloc((size_t)r->device_count, sizeof *r->devices);
    for (int k = 0; k < r->classes; k++)
        choir__step_add_program(&r->step, -1, 0);
    for (int rank = 0; rank < r->world; rank++) {
        choir__step_program *program = &r->step.programs[r->class_of[rank]];
        program->first = program->first < 0 ? rank : program->first;
        program->ranks++;
    }
    for (int d = 0; d < r->device_count; d++) {
        const choir__step_program *program = &r->step.programs[d / r->each];
        r->devices[d].alike = (int)program->ranks;
        name_device(r, p, (int)program->first, d % r->each, r->devices[d].name);
    }
    r->step.world = r->world;
    r->step.program_of = choir__alloc((size_t)r->world * sizeof *r->step.program_of);
    memcpy(r->step.program_of, r->class_of, (size_t)r->world * sizeof *r->class_of);
}

static void drop_room(choir__rehearsal *r)
{
    free(r->devices);
    choir__step_free(&r->step);
    r->devices = NULL;
    r->device_count = 0;
}

/* Runs one rank of each class, for all of them. */
static choir_status run_classes(choir__rehearsal *r, choir__job *own)
{
    int *stands_for = choir__alloc((size_t)r->world * sizeof *stands_for);
    make_room(r, &own->placement);
    for (int rank = 0; rank < r->world; rank++)
        stands_for[rank] = (int)r->step.programs[r->class_of[rank]].first;
    choir_status status = choir__dry_world_run(r->world, stands_for, run_rank, own);
    if (status != CHOIR_OK)
        (void)choir_error_message(); /* an error is an answer here: it counts as read */
    free(stands_for);
    return status;
}

/* Finds the numbers of rows that ranks share, by building the model on one rank of each class
 * so far. */
static choir_status scout(choir__rehearsal *r, choir__job *own)
{
    const int64_t steps = own->training.steps;
    r->scouting = true;
    own->training.steps = 0;
    choir_status status = run_classes(r, own);
    own->training.steps = steps;
    r->scouting = false;
    drop_room(r);
    return status;
}

static bool has_shares(const choir__composition *c)
{
    for (int d = 0; d < c->count; d++)
        if (c->dims[d].strategy->sharers)
            return true;
    return false;
}

static choir_status classify(choir__rehearsal *r, choir__job *own)
{
    choir_status status = choir__rehearsal_classify(r, own);
    if (status != CHOIR_OK || r->classes == r->world ||
        !has_shares(&own->placement.composition))
        return status;
    status = scout(r, own);
    return status == CHOIR_OK ? choir__rehearsal_classify(r, own) : status;
}

choir_status choir__job_rehearse(const choir__job *job, choir__rehearsal *r)
{
    choir__job *own = choir__alloc(sizeof *own);
    *own = *job;
    *r = (choir__rehearsal){.world = job->placement.nproc,
        .each = choir__job_strategy_devices(&job->placement),
        .holds = r->holds,
        .steps = choir__min(job->training.steps, STEPS)};
    silence(own);
    shorten(&own->training, r->steps, choir__rehearsal_batches(job));
    own->placement.rehearsal = r;
    choir_dataset *blanks[] = {blank(&own->data.train), blank(&own->data.validation)};
    if (r->world * r->each <= CHOIR__MAX_DEVICES)
        name_devices(r, &own->placement);
    choir_status status = classify(r, own);
    if (status == CHOIR_OK)
        status = run_classes(r, own);
    choir_dataset_free(blanks[0]);
    choir_dataset_free(blanks[1]);
    free(own);
    return status;
}

void choir__rehearsal_free(choir__rehearsal *r)
{
    drop_room(r);
    choir__rehearsal_drop_parts(r);
    free(r->names);
    free(r->class_of);
    free(r->rows);
    *r = (choir__rehearsal){0};
}
