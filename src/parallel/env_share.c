/* A rank's share of the job: its micro-batches, and the run, losses and data that follow. */
#include <choir/env.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"
#include "comm/far/far.h"
#include "base/tree.h"
#include "tensor/handle.h"
#include "tensor/run.h"
#include "tensor/scope.h"

static choir_status use_env(const choir_env *env, const char *function)
{
    if (!env)
        return choir__missing(function, "env");
    if (env->world <= 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected an env that choir_env_init has filled in, got one of %d ranks",
            function, env->world);
    return env->unit > 0 && env->microbatches % env->unit
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "%s: expected an env.unit that divides %lld micro-batches, got %lld",
                     function, (long long)env->microbatches, (long long)env->unit)
               : CHOIR_OK;
}

/* Checks an env, the losses, and the pointer to the result, whose name is `result`. */
static choir_status use_losses(const choir_env *env, const char *function, const void *losses,
    const char *result, const void *to)
{
    choir_status status = use_env(env, function);
    if (status == CHOIR_OK && !losses)
        return choir__missing(function, "losses");
    return status == CHOIR_OK && !to ? choir__missing(function, result) : status;
}

/* Stores a rank's micro-batches [*lo, *hi). */
static void run_of(const choir_env *env, int rank, int64_t *lo, int64_t *hi)
{
    int64_t unit = env->unit > 0 ? env->unit : 1;
    choir__tree_run(env->microbatches / unit, rank, env->world, lo, hi);
    *lo *= unit;
    *hi *= unit;
}

void choir_env_micro(const choir_env *env, int64_t *first, int64_t *count)
{
    if (use_env(env, __func__) != CHOIR_OK)
        return;
    if (choir__lacks(first, __func__, "first"))
        return;
    if (choir__lacks(count, __func__, "count"))
        return;
    int64_t end;
    run_of(env, env->rank, first, &end);
    *count = end - *first;
}

choir_scope *choir_run_open(const choir_env *env, uint64_t seed)
{
    int64_t count;
    choir_status status = use_env(env, __func__);
    if (status != CHOIR_OK) {
        choir_scope *run = choir_scope_open(NULL, seed);
        choir__scope_fail(run, status);
        return run;
    }
    choir_scope *run = choir_scope_open(env->device, seed);
    choir_env_micro(env, &choir__run_of(run)->micro_first, &count);
    choir__run_of(run)->micro_total = env->microbatches;
    return run;
}

choir_status choir_env_mean(const choir_env *env, const float *losses, float *mean)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_losses(env, __func__, losses, "mean", mean);
    if (use != CHOIR_OK)
        return use;
    if (env->world == 1) {
        *mean = choir__tree_sum(losses, env->microbatches, 1.0f / (float)env->microbatches);
        return CHOIR_OK;
    }
    int64_t total = env->microbatches, each, first, count;
    run_of(env, 0, &first, &each); /* the first run is the longest */
    float *mine = choir__calloc((size_t)(each * (env->world + 1)), sizeof *mine),
          *all = mine + each;
    choir_env_micro(env, &first, &count);
    memcpy(mine, losses, (size_t)count * sizeof *mine);
    choir_status status = choir_group_all_gather(env->group, mine, all, each, CHOIR_F32, NULL);
    for (int r = 0; r < env->world; r++) { /* close the gaps: runs only get shorter */
        int64_t lo, hi;
        run_of(env, r, &lo, &hi);
        memmove(all + lo, all + r * each, (size_t)(hi - lo) * sizeof *all);
    }
    *mean = choir__tree_sum(all, total, 1.0f / (float)total);
    free(mine);
    return status;
}

choir_status choir_env_loss(const choir_env *env, choir_tensor *const *losses, double *mean)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = use_losses(env, __func__, losses, "mean", mean);
    if (use != CHOIR_OK)
        return use;
    int64_t first, count;
    float all;
    choir_status status = CHOIR_OK;
    choir_env_micro(env, &first, &count);
    float *mine = choir__calloc((size_t)count + 1, sizeof *mine);
    for (int64_t m = 0; m < count && status == CHOIR_OK; m++)
        status = choir_read(losses[m], &mine[m], sizeof *mine);
    if (status == CHOIR_OK)
        status = choir_env_mean(env, mine, &all);
    if (status == CHOIR_OK)
        *mean = (double)all;
    free(mine);
    return status;
}

typedef struct loss_at {
    float *to;
    const void *from; /* NULL: zeros */
    int64_t count;
} loss_at;

static choir_status place_loss(const void *args)
{
    const loss_at *l = args;
    if (l->from)
        return choir__far_copy(l->to, l->from, sizeof *l->to);
    memset(l->to, 0, (size_t)l->count * sizeof *l->to);
    return CHOIR_OK;
}

/* Each rank adds its own losses to zeros, which is exact. */
choir_status choir_env_share_losses(
    const choir_env *env, choir_tensor *const *losses, float *all)
{
    choir_status use = use_losses(env, __func__, losses, "all", all);
    if (use != CHOIR_OK)
        return use;
    int64_t first, count;
    choir_work work;
    choir_env_micro(env, &first, &count);
    choir_status status = choir_group_wait_device(env->group, env->device);
    loss_at at = {all, NULL, env->microbatches};
    if (status == CHOIR_OK)
        status = choir_group_call(env->group, place_loss, &at, sizeof at, &work);
    for (int64_t m = 0; m < count && status == CHOIR_OK; m++) {
        status = choir__use_tensor(losses[m], __func__);
        if (status != CHOIR_OK)
            break;
        at = (loss_at){all + first + m, choir__data(losses[m]), 1};
        status = choir_group_call(env->group, place_loss, &at, sizeof at, &work);
    }
    if (status == CHOIR_OK && env->world > 1)
        status = choir_group_all_reduce(
            env->group, all, env->microbatches, CHOIR_F32, CHOIR_SUM, &work);
    return status == CHOIR_OK ? choir_device_wait_work(env->device, work) : status;
}

choir_loader *choir_env_loader(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, int64_t batch_size)
{
    run = choir__open_scope(run, __func__);
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = batch_size;
    return choir_env_loader_with(run, env, dataset, opts);
}

/* Fills in what a rank's loader takes from the run and from env. */
static void share_out(
    choir_scope *run, const choir_env *env, choir_loader_opts *opts, const char *function)
{
    opts->seed = run->seed;
    choir_status status = use_env(env, function);
    if (status == CHOIR_OK) {
        opts->microbatches = env->microbatches;
        choir_env_micro(env, &opts->micro_first, &opts->micro_count);
    } else {
        choir__scope_fail(run, status);
    }
}

choir_loader *choir_env_loader_with(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, choir_loader_opts opts)
{
    run = choir__open_scope(run, __func__);
    share_out(run, env, &opts, __func__);
    return choir_loader_new(run, dataset, opts);
}

choir_parts_loader *choir_env_parts_loader(
    choir_scope *run, const choir_env *env, choir_parts_dataset *dataset, choir_parts_opts opts)
{
    run = choir__open_scope(run, __func__);
    share_out(run, env, &opts.loader, __func__);
    return choir_parts_loader_new(run, dataset, opts);
}

static void free_dataset(void *dataset)
{
    choir_dataset_free(dataset);
}

choir_loader *choir_mnist(
    choir_scope *run, const char *folder, const choir_env *env, int64_t batch_size)
{
    run = choir__open_scope(run, __func__);
    choir_dataset *dataset = NULL;
    choir_status status = choir_dataset_idx(folder, CHOIR_TRAIN, &dataset);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    choir__on_close(
        run, free_dataset, dataset); /* after the loader, which is registered later */
    return choir_env_loader(run, env, dataset, batch_size);
}
