/* The place of this process in a job: rank, group, device. It is what a launcher (choir run,
 * choir_spawn) put into the environment: RANK, WORLD_SIZE, LOCAL_RANK; a program started by
 * hand is alone.
 *
 * Threads: the main thread. Collective: choir_env_init, with more than one rank. */
#ifndef CHOIR_ENV_H
#define CHOIR_ENV_H

#include <choir/data.h>
#include <choir/group.h>
#include <choir/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_env {
    int rank, world, local_rank;
    choir_group *group; /* of all ranks; owned by this struct */
    choir_device
        *device; /* cpu:(local_rank), around the list when there are more ranks than cores; with
                    CHOIR_DEVICE=cuda or auto a GPU alike, with CHOIR_DEVICE=cuda:1 that one */
    int64_t microbatches; /* the cut of the global batch; a multiple is accumulation. Default:
                             world */
} choir_env;

/** Errors: argument (of the environment), those of choir_group_init. */
choir_status choir_env_init(choir_env *env);
/** The same with a group as choir_group_init's method and opts say. */
choir_status choir_env_init_with(choir_env *env, const char *method, choir_group_opts opts);
void choir_env_free(choir_env *env); /* after the runs are closed; NULL is fine */

/** A run on env's device whose steps start at this rank's first micro-batch. */
choir_scope *choir_run_open(const choir_env *env, uint64_t seed);

/** This rank's contiguous run of env->microbatches: [*first, *first + *count). */
void choir_env_micro(const choir_env *env, int64_t *first, int64_t *count);

/** The job's loss out of the losses of this rank's micro-batches (as many as choir_env_micro
 * says): summed over all micro-batches in their fixed tree, times one over their number.
 * Collective. */
choir_status choir_env_mean(const choir_env *env, const float *losses, float *mean);

/** A loader of this rank's micro-batches of `dataset`, shuffled with the run's seed. */
choir_loader *choir_env_loader(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, int64_t batch_size);

/** The same with workers, prefetch and so on as opts say; micro-batches and seed are env's and
 * the run's. */
choir_loader *choir_env_loader_with(
    choir_scope *run, const choir_env *env, choir_dataset *dataset, choir_loader_opts opts);

/** choir_env_loader over the training split of a folder of IDX files (choir_dataset_idx), which
 * goes with the run. Never NULL; errors stick to the run. */
choir_loader *choir_mnist(
    choir_scope *run, const char *folder, const choir_env *env, int64_t batch_size);

#ifdef __cplusplus
}
#endif
#endif
