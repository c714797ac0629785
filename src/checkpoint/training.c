/* Checkpoints of weights and optimizers, for programs, and the resuming of a whole training
 * (choir/training.h): the state is read and compared with this run's
 * model, batches and seed, ranks agree, and then weights, optimizer, scaler and the loader's
 * position are restored. A save notes the numbers of loader, model, scaler and optimizer in the
 * state; the weights are the averages, if there are any. */
#include <choir/training.h>

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset.h"
#include "nn/module.h"
#include "optim/optim.h"

/* --- checkpoints --- */

choir_checkpoint_opts choir_checkpoint_defaults(void)
{
    return (choir_checkpoint_opts){.file_bytes = CHOIR__FILE_BYTES};
}

choir_status choir_checkpoint_open(
    const char *dir, choir_checkpoint_opts opts, choir_checkpoint **checkpoint)
{
    if (!dir)
        return choir__missing(__func__, "dir");
    if (!checkpoint)
        return choir__missing(__func__, "checkpoint");
    choir_checkpoint *c = choir__calloc(1, sizeof *c);
    if (!opts.file_bytes)
        opts.file_bytes = CHOIR__FILE_BYTES;
    choir_status status = choir__saver_new(opts.group, &c->saver);
    if (status != CHOIR_OK) {
        free(c);
        return status;
    }
    c->dir = choir__strdup(dir);
    c->opts = opts;
    *checkpoint = c;
    return CHOIR_OK;
}

bool choir_checkpoint_exists(const choir_checkpoint *c)
{
    if (choir__lacks(c, __func__, "checkpoint"))
        return false;
    char found[PATH_MAX];
    return choir__checkpoint_find(c->dir, found) == CHOIR_OK;
}

choir_status choir_checkpoint_save(
    choir_checkpoint *c, choir_module *module, choir_optim *optim, int64_t step)
{
    if (!c)
        return choir__missing(__func__, "checkpoint");
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    choir_train_state state = choir_train_state_none();
    state.step = step;
    return choir_training_save(
        c, &(choir_training){.module = module, .optim = optim}, &state, 0);
}

choir_status choir_checkpoint_prepare(
    choir_checkpoint *c, choir_module *module, choir_optim *optim)
{
    if (!c)
        return choir__missing(__func__, "checkpoint");
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    choir__save_args args = {
        .module = module, .optim = optim, .async = c->opts.async, .least = c->opts.file_bytes};
    return choir__saver_prepare(c->saver, &args);
}

choir_status choir_checkpoint_wait(choir_checkpoint *c)
{
    if (!c)
        return choir__missing(__func__, "checkpoint");
    return choir__saver_wait(c->saver);
}

bool choir_checkpoint_saved(choir_checkpoint *c, int64_t *step)
{
    if (choir__lacks(c, __func__, "checkpoint"))
        return false;
    if (choir__lacks(step, __func__, "step"))
        return false;
    return choir__saver_saved(c->saver, step);
}

choir_status choir_checkpoint_load(
    choir_checkpoint *c, choir_module *module, choir_optim *optim, int64_t *step)
{
    if (!c)
        return choir__missing(__func__, "checkpoint");
    choir_status use_module = choir__use_module(module, __func__);
    if (use_module != CHOIR_OK)
        return use_module;
    if (!step)
        return choir__missing(__func__, "step");
    char found[PATH_MAX];
    choir_train_state state;
    choir_status status = choir__saver_wait(c->saver);
    if (status != CHOIR_OK)
        return status;
    status = choir__checkpoint_find(c->dir, found);
    if (status == CHOIR_OK)
        status = choir__checkpoint_state(found, &state);
    status = choir__agree(c->opts.group, status);
    if (status == CHOIR_OK)
        status = choir__checkpoint_load(found, module, optim, c->opts.group);
    if (status == CHOIR_OK)
        *step = state.step;
    return status;
}

choir_status choir_checkpoint_close(choir_checkpoint *c)
{
    if (!c)
        return CHOIR_OK;
    choir_status status = choir__saver_wait(c->saver);
    choir__saver_free(c->saver);
    free(c->dir);
    free(c);
    return status;
}

/* --- resuming --- */

choir_status choir_training_find(const char *path, char *found)
{
    if (!found)
        return choir__missing(__func__, "found");
    return choir__checkpoint_find(path, found);
}

choir_status choir_training_read(const char *path, choir_train_state *state)
{
    char found[PATH_MAX];
    choir_status status = choir__checkpoint_find(path, found);
    return status == CHOIR_OK ? choir__checkpoint_state(found, state) : status;
}

choir_status choir_training_tokenizer(const char *path, choir_tokenizer **tokenizer)
{
    char found[PATH_MAX];
    choir_status status = choir__checkpoint_find(path, found);
    return status == CHOIR_OK ? choir__checkpoint_tokenizer(found, tokenizer) : status;
}

choir_status choir_training_job(const char *path, char **job)
{
    char found[PATH_MAX];
    choir_status status = choir__checkpoint_find(path, found);
    return status == CHOIR_OK ? choir__checkpoint_job(found, job) : status;
}

/* Checks that this run has the model, the batches and the seed that were saved. Otherwise its
 * bits would differ. */
static choir_status check(
    const choir_training *t, const char *found, const choir_train_state *s)
{
    if (t->info && strcmp(s->model, t->info->config) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is of the model %s, not %s", found,
            s->model, t->info->config);
    int64_t slices = choir__module_slices(t->module);
    if (t->optim && s->slices && s->slices != slices && !t->recut)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained with weights in %lld slices, not %lld; expected the same "
            "number",
            found, (long long)s->slices, (long long)slices);
    if (!t->loader)
        return CHOIR_OK;
    const choir_loader_opts *opts = choir__loader_opts(t->loader);
    if (s->batch_size != opts->batch_size || s->microbatches != opts->microbatches)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained with --batch-size %lld --microbatches %lld: continue with the same",
            found, (long long)s->batch_size, (long long)s->microbatches);
    if (s->seed != choir_scope_seed(t->module->run))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s was trained with --seed %llu; the bits continue only with the same", found,
            (unsigned long long)s->seed);
    return CHOIR_OK;
}

/* Restores the scaler. If gradients were not scaled when the state was saved, the scaler keeps
 * its initial state. */
static choir_status set_scale(const choir_training *t, const choir_train_state *s)
{
    if (!t->scaler || !(s->loss_scale > 0))
        return CHOIR_OK;
    if (s->loss_scale > (double)FLT_MAX)
        return choir__error(
            CHOIR_ERR_FORMAT, "state.json: a loss_scale of %g is no scale", s->loss_scale);
    return choir_scaler_set(t->scaler, t->optim,
        (choir_scaler_state){.scale = (float)s->loss_scale,
            .clean = s->scale_clean,
            .in_a_row = s->scale_in_a_row,
            .skipped = {s->skipped_steps}});
}

choir_status choir_training_resume(
    const char *path, const choir_training *t, choir_group *group, choir_train_state *state)
{
    char found[PATH_MAX];
    choir_train_state s;
    choir_status status = choir__checkpoint_find(path, found);
    if (status == CHOIR_OK)
        status = choir__checkpoint_state(found, &s);
    if (status == CHOIR_OK)
        status = check(t, found, &s);
    status = choir__agree(group, status);
    if (status == CHOIR_OK)
        status = choir__checkpoint_load(found, t->module, t->optim, group);
    if (status == CHOIR_OK)
        status = set_scale(t, &s);
    if (status == CHOIR_OK && t->optim)
        status = choir__optim_unswap(t->optim);
    if (status != CHOIR_OK)
        return status;
    choir_run_seek(t->module->run, (uint64_t)s.step);
    if (t->loader)
        choir_loader_seek_step(t->loader, s.step);
    if (state)
        *state = s;
    return CHOIR_OK;
}

choir_status choir_training_open(const char *dir, choir_checkpoint_opts opts,
    const choir_training *t, choir_train_state *state, choir_checkpoint **checkpoint)
{
    if (!dir)
        return choir__missing(__func__, "dir");
    if (!t)
        return choir__missing(__func__, "training");
    if (!state)
        return choir__missing(__func__, "train state");
    if (!checkpoint)
        return choir__missing(__func__, "checkpoint");
    choir_checkpoint *c;
    choir_train_state s = choir_train_state_none();
    choir_status status = choir_checkpoint_open(dir, opts, &c);
    if (status != CHOIR_OK)
        return status;
    if (choir_checkpoint_exists(c))
        status = choir_training_resume(dir, t, opts.group, &s);
    if (status != CHOIR_OK) {
        (void)!choir_checkpoint_close(c);
        return status;
    }
    *state = s;
    *checkpoint = c;
    return CHOIR_OK;
}

/* --- saving --- */

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
    s->pixel_resize = info->pixel_resize;
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
    s.slices = choir__module_slices(t->module);
    if (t->info)
        note_model(t->info, &s);
    if (!s.world)
        s.world = choir__world_of(c->opts.group);
    s.seed = choir_scope_seed(t->module->run);
    snprintf(s.bits, sizeof s.bits, "%s", choir__device_bits(t->module->run->device));
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
    bool averages = t->optim && t->optim->average.on && !t->optim->average.swapped;
    status = averages ? choir_optim_swap(t->optim) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    choir_status saved = choir__saver_save(c->saver, &args);
    status = averages ? choir_optim_swap(t->optim) : CHOIR_OK;
    return saved == CHOIR_OK ? status : saved;
}
