/* Saves a whole training (choir/training.h): the numbers of loader, model, scaler and optimizer
 * are noted in the state; the weights are the averages, if there are any. training.c resumes
 * it. */
#include <choir/training.h>

#include <limits.h>
#include <stdio.h>

#include "checkpoint/agree.h"
#include "checkpoint/api.h"
#include "data/dataset.h"
#include "optim/optim.h"

static void note_data(const choir_loader *loader, choir_train_state *s)
{
    const choir_loader_opts *opts = choir__loader_opts(loader);
    s->batch_size = opts->batch_size;
    s->microbatches = opts->microbatches;
    if (__builtin_mul_overflow(s->step, opts->microbatches, &s->position))
        s->position = INT64_MAX;
}

static void note_model(const choir_model_info *info, choir_train_state *s)
{
    s->input = info->input;
    s->output = info->output;
    s->classes = info->classes;
    s->task = info->task;
    s->pixel_mean = info->pixel_mean;
    s->pixel_deviation = info->pixel_deviation;
    snprintf(s->model, sizeof s->model, "%s", info->config);
}

static choir_status note_scale(choir_scaler *scaler, choir_train_state *s)
{
    choir_scaler_state scale;
    choir_status status = choir_scaler_get(scaler, &scale);
    if (status != CHOIR_OK)
        return status;
    s->loss_scale = (double)scale.scale;
    s->scale_clean = scale.clean;
    s->scale_in_a_row = scale.in_a_row;
    s->skipped_steps = scale.skipped[0];
    return CHOIR_OK;
}

choir_status choir_training_save(choir_checkpoint *c, const choir_training *t,
    const choir_train_state *state, unsigned flags)
{
    if (!c)
        return choir__missing(__func__, "checkpoint");
    if (!t)
        return choir__missing(__func__, "training");
    if (!state)
        return choir__missing(__func__, "train state");
    choir_train_state s = *state;
    choir_status status = t->scaler ? note_scale(t->scaler, &s) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    if (t->loader)
        note_data(t->loader, &s);
    if (t->info)
        note_model(t->info, &s);
    if (!s.world)
        s.world = choir__world_of(c->opts.group);
    s.seed = choir_scope_seed(t->module->run);
    s.optimizer_steps = t->optim ? choir_optim_steps(t->optim) : 0;
    choir__save_args args = {.dir = c->dir,
        .state = &s,
        .module = t->module,
        .optim = t->optim,
        .tokenizer = t->tokenizer,
        .classes = t->classes,
        .beside = t->beside,
        .job = t->job,
        .best = flags & CHOIR_SAVE_BEST,
        .keep = c->opts.keep,
        .async = c->opts.async && !(flags & CHOIR_SAVE_NOW),
        .least = c->opts.file_bytes};
    bool averages = t->optim && t->optim->averages && !t->optim->swapped;
    status = averages ? choir_optim_swap(t->optim) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    choir_status saved = choir__saver_save(c->saver, &args);
    status = averages ? choir_optim_swap(t->optim) : CHOIR_OK;
    return saved == CHOIR_OK ? status : saved;
}
