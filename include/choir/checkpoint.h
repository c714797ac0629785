/* Weights and training state on disk.
 *
 * Weights are safetensors files, which PyTorch users can read directly: parameters and buffers
 * under their full names, row-major (convolution weights logically as OIHW), tied weights
 * once. A training checkpoint is a folder with weights, optimizer state, and a JSON file for
 * everything else. Writing is atomic: a kill, a full disk or a power cut at any moment leaves
 * the previous files intact.
 *
 *     choir_checkpoint_opts opts = choir_checkpoint_defaults();
 *     opts.group = env.group;               (all ranks save, each its part)
 *     opts.async = true;                    (while training continues)
 *     choir_check(choir_checkpoint_open("run", opts, &checkpoint));
 *     if (choir_checkpoint_exists(checkpoint))
 *         choir_check(choir_checkpoint_load(checkpoint, net, opt, &step));
 *     ...
 *     choir_check(choir_checkpoint_save(checkpoint, net, opt, step));
 *     ...
 *     choir_check(choir_checkpoint_close(checkpoint));
 *
 * A checkpoint does not depend on the ranks that saved it: a single process, three replicas or
 * a pipeline can load a checkpoint of four ranks with sharded parameters, with the same bits.
 *
 * Threads: the run's thread. Collective over the options' group: all of choir_checkpoint_*
 * except exists and defaults. choir_save_whole is collective over its own group, and choir_load
 * is collective if the module is sharded. */
#ifndef CHOIR_CHECKPOINT_H
#define CHOIR_CHECKPOINT_H

#include <choir/group.h>
#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes parameters and buffers to one safetensors file. Errors: io, naming the file and the
 * cause; nonfinite (weights that choir_load would refuse); mismatch (the module is sharded over
 * ranks: use choir_save_whole). If writing fails, an older file at this path stays intact. */
CHOIR_CHECKED choir_status choir_save(choir_module *module, const char *path);

/** Like choir_save, for a module that may be sharded over the ranks of group. Rank 0 writes;
 * the other ranks send it their parts, one tensor at a time. Collective. */
CHOIR_CHECKED choir_status choir_save_whole(
    choir_module *module, choir_group *group, const char *path);

/** Reads parameters and buffers back, by name. For a sharded module, each rank reads its own
 * part. f16, bf16 and f64 tensors are converted to f32. Errors: io, format (truncated,
 * corrupt, wrong header; missing, extra, misshaped or non-finite tensors), naming file and
 * tensor. The module changes only if the whole file is good. */
CHOIR_CHECKED choir_status choir_load(choir_module *module, const char *path);

/* --- training checkpoints --- */

/** A folder that holds the newest checkpoints of a run, and the one being saved. */
typedef struct choir_checkpoint choir_checkpoint;

typedef struct choir_checkpoint_opts {
    choir_group *group; /* ranks that save and load together; NULL: this process alone */
    bool async;         /* a save returns after copying to memory; a thread writes */
    /* Replicated tensors are split over enough ranks that each writes about this many bytes;
     * default 64 MiB. */
    int64_t file_bytes;
    int64_t keep; /* number of newest checkpoints kept; default, and 0: 1 */
} choir_checkpoint_opts;

choir_checkpoint_opts choir_checkpoint_defaults(void);

/** Opens the folder dir; the first save makes it. Errors: as choir_group_split. */
CHOIR_CHECKED choir_status choir_checkpoint_open(
    const char *dir, choir_checkpoint_opts opts, choir_checkpoint **checkpoint);

/** Returns true if there is a checkpoint to load. */
bool choir_checkpoint_exists(const choir_checkpoint *checkpoint);

/**
 * Saves parameters, buffers and the optimizer's state (optim may be NULL) as DIR/step-N, and
 * makes it the latest checkpoint. When it is on disk, only the newest opts.keep checkpoints
 * stay. Checkpoints of later steps are removed, too: the run went back to an earlier step, so
 * they belong to an abandoned course.
 *
 * With async, a save first waits for the previous save; if the previous one failed, the call
 * returns its error and saves nothing. If one rank fails (a full disk), all ranks return its
 * error, and the previous checkpoint stays.
 *
 * Errors: io, nonfinite (weights that choir_load would refuse), memory, the group's.
 */
CHOIR_CHECKED choir_status choir_checkpoint_save(
    choir_checkpoint *checkpoint, choir_module *module, choir_optim *optim, int64_t step);

/**
 * Prepares the memory into which asynchronous saves copy. Otherwise the first save prepares it
 * while training waits, which takes up to ten times as long as the copy. A thread does the
 * work; call this once, after the optimizer's first step and before the first save. Does
 * nothing without async.
 *
 * Errors: as the save in progress, the group's.
 */
CHOIR_CHECKED choir_status choir_checkpoint_prepare(
    choir_checkpoint *checkpoint, choir_module *module, choir_optim *optim);

/** Waits for the save in progress and returns its error. */
CHOIR_CHECKED choir_status choir_checkpoint_wait(choir_checkpoint *checkpoint);

/**
 * Loads the latest checkpoint: each rank reads its own part of module and optim (which may be
 * NULL), no matter which ranks saved it. *step receives the saved step. The ranks share the
 * work of comparing every file with its saved SHA-256; no rank changes anything unless all
 * files are good.
 *
 * Errors: io (no checkpoint), format (a file is missing, damaged or from another checkpoint;
 * the model or the optimizer does not fit), naming file and tensor.
 */
CHOIR_CHECKED choir_status choir_checkpoint_load(
    choir_checkpoint *checkpoint, choir_module *module, choir_optim *optim, int64_t *step);

/** Waits for the save in progress, frees the checkpoint, and returns the save's error. NULL is
 * fine. */
CHOIR_CHECKED choir_status choir_checkpoint_close(choir_checkpoint *checkpoint);

#ifdef __cplusplus
}
#endif
#endif
