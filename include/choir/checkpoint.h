/* Weights and training state on disk.
 *
 * Weights are safetensors files, which PyTorch's users read as they are: parameters and buffers
 * under their full names, row-major (images' weights as logically OIHW), tied weights once. A
 * training checkpoint is a folder of weights, optimizer state and a JSON of everything else.
 * Writing is atomic: a kill, a full disk or a power cut at any moment leaves what was there
 * before.
 *
 *     choir_checkpoint_opts opts = choir_checkpoint_defaults();
 *     opts.group = env.group;               (all ranks save, each its part)
 *     opts.async = true;                    (while training goes on)
 *     choir_check(choir_checkpoint_open("run", opts, &checkpoint));
 *     if (choir_checkpoint_exists(checkpoint))
 *         choir_check(choir_checkpoint_load(checkpoint, net, opt, &step));
 *     ...
 *     choir_check(choir_checkpoint_save(checkpoint, net, opt, step));
 *     ...
 *     choir_check(choir_checkpoint_close(checkpoint));
 *
 * A checkpoint does not depend on who saved it: one of four ranks with sharded parameters is
 * loaded by a single process, by three replicas or by a pipeline, with the same bits.
 *
 * Threads: those of the run. Collective: over the options' group, all of choir_checkpoint_*
 * but exists and defaults; over its group choir_save_whole; choir_load, if the module is
 * sharded.
 */
#ifndef CHOIR_CHECKPOINT_H
#define CHOIR_CHECKPOINT_H

#include <choir/group.h>
#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes parameters and buffers to one safetensors file. Errors: io, naming the file and the
 * cause; mismatch (the module is sharded over ranks: choir_save_whole). */
choir_status choir_save(choir_module *module, const char *path);

/** The same of a module that may be sharded over the ranks of group: rank 0 writes, to which
 * the others send their parts, a tensor at a time. Collective. */
choir_status choir_save_whole(choir_module *module, choir_group *group, const char *path);

/** Reads them back, by name; of a sharded module what this rank has of it. f16, bf16 and f64
 * tensors are converted to f32. Errors: io, format (truncated, corrupt, lying header; missing,
 * extra, misshaped or non-finite tensors), naming file and tensor; the module is changed only
 * if the whole file is good. */
choir_status choir_load(choir_module *module, const char *path);

/* --- training checkpoints --- */

/** A folder that holds the checkpoints of a run: the latest, and what is being saved. */
typedef struct choir_checkpoint choir_checkpoint;

typedef struct choir_checkpoint_opts {
    choir_group *group; /* the ranks that save and load together; NULL: this process alone */
    bool async;         /* a save returns once there is a copy in memory; a thread writes it */
    int64_t file_bytes; /* of what all ranks have, as many of them write as get so many bytes
                           each; default 64 MiB */
} choir_checkpoint_opts;

choir_checkpoint_opts choir_checkpoint_defaults(void);

/** dir: made by the first save. Errors: those of choir_group_split. */
choir_status choir_checkpoint_open(
    const char *dir, choir_checkpoint_opts opts, choir_checkpoint **checkpoint);

/** Whether there is one to load. */
bool choir_checkpoint_exists(const choir_checkpoint *checkpoint);

/**
 * Saves parameters, buffers and the optimizer's state (optim may be NULL) as DIR/step-N, and
 * makes it the latest; the one before is removed when the new one is on the disk.
 *
 * With async a save waits for the one before, and returns that one's error, if it had one,
 * instead of saving. If one rank fails (a full disk) all of them return its error, and the
 * checkpoint before stands.
 *
 * Errors: io, nonfinite (weights that choir_load would refuse), memory, those of the group.
 */
choir_status choir_checkpoint_save(
    choir_checkpoint *checkpoint, choir_module *module, choir_optim *optim, int64_t step);

/** Waits for the save under way; its error. */
choir_status choir_checkpoint_wait(choir_checkpoint *checkpoint);

/**
 * Loads the latest: on each rank what it has of module and optim (which may be NULL), whichever
 * ranks saved it. *step: as it was saved. Every file is compared with the SHA-256 it was saved
 * with, each by one of the ranks; nothing is changed on any rank unless all is good.
 *
 * Errors: io (there is none), format (a file that is missing, damaged or of another checkpoint,
 * a model or an optimizer that does not fit), naming file and tensor.
 */
choir_status choir_checkpoint_load(
    choir_checkpoint *checkpoint, choir_module *module, choir_optim *optim, int64_t *step);

/** Waits, and lets go of it; the error of the save under way. NULL is fine. */
choir_status choir_checkpoint_close(choir_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
