/* The environment of this process in a job: rank, group, device. A launcher (choir run,
 * choir_spawn) puts it into RANK, WORLD_SIZE and LOCAL_RANK; a program started by hand runs
 * alone.
 *
 * Threads: the main thread. Collective: choir_env_init, with more than one rank. */
#ifndef CHOIR_ENV_H
#define CHOIR_ENV_H

#include <choir/group.h>
#include <choir/parts.h>
#include <choir/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_env {
    int rank, world, local_rank;
    choir_group *group; /* group of all ranks; this struct owns it */
    /* cpu:(local_rank); ranks share devices if the machine has fewer cores than ranks. With
     * CHOIR_DEVICE=cuda or auto, a GPU chosen in the same way; with CHOIR_DEVICE=cuda:1, this
     * GPU. */
    choir_device *device;
    /* micro-batches in the global batch; a multiple of world accumulates gradients; default:
     * world */
    int64_t microbatches;
    /* number of micro-batches that stay together on a rank, such as a worker's
     * (choir/diloco.h); it divides microbatches; default 0: 1 */
    int64_t unit;
    /* number of the ranks' group: 1 at first, then counts up when ranks leave or join
     * (elastic.h); 0: this process is alone until it becomes a rank */
    uint64_t generation;
} choir_env;

/** Fills in env from the environment and meets the other ranks. Errors: argument (a variable of
 * the environment), and as choir_group_init. */
CHOIR_CHECKED choir_status choir_env_init(choir_env *env);
/** Like choir_env_init, but passes method and opts to choir_group_init. */
CHOIR_CHECKED choir_status choir_env_init_with(
    choir_env *env, const char *method, choir_group_opts opts);
/** Like choir_env_init_with, except that the caller sets env->device, which is NULL at first.
 */
CHOIR_CHECKED choir_status choir_env_join(
    choir_env *env, const char *method, choir_group_opts opts);
void choir_env_free(choir_env *env); /* after the runs are closed; NULL is fine */

/** Opens a run on env's device, whose steps start at this rank's first micro-batch. */
choir_scope *choir_run_open(const choir_env *env, uint64_t seed);

/** Stores this rank's contiguous range of env->microbatches: [*first, *first + *count). */
void choir_env_micro(const choir_env *env, int64_t *first, int64_t *count);

/** Computes the job's loss from the losses of this rank's micro-batches (as many as
 * choir_env_micro says). The sum runs over all micro-batches in their fixed tree and is
 * multiplied by one over their number. Collective. */
CHOIR_CHECKED choir_status choir_env_mean(
    const choir_env *env, const float *losses, float *mean);

/** Like choir_env_mean, but reads the losses () of this rank's micro-batches, in order, from
 * tensors. Waits for the device. Collective. */
CHOIR_CHECKED choir_status choir_env_loss(
    const choir_env *env, choir_tensor *const *losses, double *mean);

/** Queues an exchange of losses, within a step and before the optimizer's update. Collective.
 *
 * @param losses  the losses () of this rank's micro-batches, in order, in memory that persists
 * @param all     (microbatches) receives the losses of all micro-batches. It is valid once the
 *                step is done, on every rank whose update runs, and must outlive a recording
 *                of the step */
CHOIR_CHECKED choir_status choir_env_share_losses(
    const choir_env *env, choir_tensor *const *losses, float *all);

/** Makes a loader of this rank's micro-batches, shuffled with the run's seed. */
choir_loader *choir_env_loader(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, int64_t batch_size);

/** Like choir_env_loader, with workers, prefetch and the other options of opts; the
 * micro-batches are env's and the seed is the run's. */
choir_loader *choir_env_loader_with(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, choir_loader_opts opts);

/** Makes a loader of samples with named parts (parts.h) of this rank's micro-batches; like
 * choir_env_loader_with. */
choir_parts_loader *choir_env_parts_loader(choir_scope *run, const choir_env *env,
    choir_parts_dataset *dataset, choir_parts_opts opts);

/** Makes a choir_env_loader over the training split of a folder of IDX files
 * (choir_dataset_idx). The run owns the dataset. Never NULL; errors stick to the run. */
choir_loader *choir_mnist(
    choir_scope *run, const char *folder, const choir_env *env, int64_t batch_size);

#ifdef __cplusplus
}
#endif
#endif
