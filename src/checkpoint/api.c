/* Checkpoints of weights and optimizers, for programs. training.c saves and
 * resumes all of a training. */
#include <limits.h>
#include <stdlib.h>

#include "base/base.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "nn/module.h"

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
