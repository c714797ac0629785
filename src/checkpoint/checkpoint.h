/* A training checkpoint: a folder that appears whole or not at all.
 *
 *     DIR/step-00000200/model.safetensors       parameters and buffers
 *                       optimizer.safetensors   optimizer state, "exp_avg.NAME" ...
 *                       tokenizer.json          of a language model; choir_tokenizer.json if it
 *                                               has no published form
 *                       config.json             the model in its published form, if it has one
 *                       tokenizer_config.json   and other files that were beside the published
 *                                               model or its tokenizer (choir/beside.h)
 *                       job.json                the program's record of its options, if any
 *                       state.json              everything else; written last
 *     DIR/latest -> step-00000200               symbolic links, replaced by rename
 *     DIR/best   -> step-00000150               the lowest validation loss
 *
 * If several ranks write, each has its own files, model-00001-of-00004.safetensors and so on
 * (save.h), with an index in the form that other programs read:
 *
 *     model.safetensors.index.json              {"weight_map": {"TENSOR": "FILE", ...}}
 *
 * A save writes DIR/.new-MARK, syncs it and renames it to its step. Then it moves `latest` (and
 * `best`), and removes the steps that neither of them names. The next save removes the
 * leftovers of killed saves (.new-*). */
#ifndef CHOIR_CHECKPOINT_INTERNAL_H
#define CHOIR_CHECKPOINT_INTERNAL_H

#include <choir/training.h>

/* --- saving (save.c) --- */

/* Default of choir__save_args.least. */
#define CHOIR__FILE_BYTES ((int64_t)64 << 20)

/* Saves checkpoints, one after another, and holds the state of a save in flight. */
typedef struct choir__saver choir__saver;

typedef struct choir__save_args {
    const char *dir; /* created if missing */
    const choir_train_state *state;
    choir_module *module;
    choir_optim *optim;               /* may be NULL */
    const choir_tokenizer *tokenizer; /* may be NULL; must stay until the save is done */
    const choir_class_names *classes; /* may be NULL; like the tokenizer */
    const choir_beside *beside;       /* may be NULL; like the tokenizer */
    const char *job;                  /* text of job.json, which is copied; may be NULL */
    bool best;                        /* this is the best checkpoint so far */
    int64_t keep;                     /* newest checkpoints that stay; 0: 1 */
    /* returns once the data is copied; a thread writes it */
    bool async;
    /* replicated tensors are split over enough ranks that each writes this many bytes */
    int64_t least;
} choir__save_args;

/* A caller's knowledge of a part of a tensor that is about to be saved: the hash of its name
 * (choir__rng_key), and the hash of its numbers (device/kernels/hash.h), where an element's
 * place is the sum over the dimensions of its index times place[d]. */
typedef struct choir__proof {
    bool known;
    bool missing; /* the caller has hashed all tensors, and none of this name and place */
    uint64_t name, hash;
    int64_t place[CHOIR_MAX_DIMS];
} choir__proof;
struct choir__item;
struct choir__box_region;
typedef void choir__proof_fn(void *arg, const struct choir__item *item,
    const struct choir__box_region *region, choir__proof *proof);

/* group: all ranks that save together; NULL: this process alone. Collective. */
choir_status choir__saver_new(choir_group *group, choir__saver **saver);
/* From now on, saves fail if their numbers do not have the proofs that know(arg, ...)
 * gives at their beginning. */
void choir__saver_proves(choir__saver *saver, choir__proof_fn *know, void *arg);
/* Prepares memory for the copies of asynchronous saves of these objects on a thread, so that
 * the first one need not wait for it. Only module, optim, async and least are used. Collective.
 * Errors: the previous save's, the group's and the run's. */
choir_status choir__saver_prepare(choir__saver *saver, const choir__save_args *args);
/* Waits for the previous save, then saves. An existing checkpoint of the same step is replaced.
 * All ranks return the same status: if one fails, all fail, and the previous checkpoint
 * remains. Collective. Errors: the previous save's; io (also when another process saves
 * to DIR); nonfinite (weights that choir_load would refuse do not replace good ones); the
 * group's. */
choir_status choir__saver_save(choir__saver *saver, const choir__save_args *args);
/* Waits for the save in flight, if any. Collective. */
choir_status choir__saver_wait(choir__saver *saver);
/* Returns whether a save has completed since the previous call that returned true. *step
 * receives the step of the last completed save. */
bool choir__saver_saved(choir__saver *saver, int64_t *step);
/* Waits for the save in flight; its error is dropped. */
void choir__saver_free(choir__saver *saver);

/* Adds to DIR/step-N, N = state->step, what followed from an evaluation of it: the losses, best
 * measures and plateau of *state, and eval_due; best: DIR/best names it from now on, and of the
 * others `keep` stay. Whole or not at all, also if this process is killed. Not collective.
 * Errors: io, format. */
choir_status choir__checkpoint_amend(
    const char *dir, const choir_train_state *state, bool best, int64_t keep);

/* --- going back: rewind.c --- */

/* Finds the newest whole checkpoint that is not behind `step`. path: PATH_MAX bytes, receives
 * the checkpoint's folder. Error: argument; the message names the steps that are kept. */
choir_status choir__checkpoint_before(const char *dir, int64_t step, char *path);

/* Takes a run back to an earlier step: DIR/latest names it, and DIR/best nothing that is behind
 * it. The next save removes the steps behind it. Error: io. */
choir_status choir__checkpoint_go_back(const char *dir, int64_t step);

/* Renames the checkpoints behind a step to DIR/suspect-step-N, where nothing finds them by
 * itself. They replace those that have such a name. Error: io; all that can be renamed are. */
choir_status choir__checkpoint_put_aside(const char *dir, int64_t step);

/* --- finding and loading --- */

/* Finds the checkpoint that PATH refers to: a DIR with `latest`, a step's own folder, DIR/best,
 * or a .safetensors file (weights only). found: PATH_MAX bytes, receives the folder or file. */
choir_status choir__checkpoint_find(const char *path, char *found);

/* Reads state.json of a checkpoint's folder, and compares every file's size with the recorded
 * one. Errors: io, format, naming file and key. */
choir_status choir__checkpoint_state(const char *folder, choir_train_state *state);

/* Loads the parts of the weights that this rank holds, from a checkpoint of any number of
 * ranks; if optim is not NULL, also its state and step count. The ranks of the group together
 * compare sizes and SHA-256 of all files with state.json. Nothing changes on any rank unless
 * everything is valid. group may be NULL. Collective. Errors: io, format. */
choir_status choir__checkpoint_load(
    const char *folder, choir_module *module, choir_optim *optim, choir_group *group);

/* Loads the tokenizer, or sets NULL if the checkpoint has none. */
choir_status choir__checkpoint_tokenizer(const char *folder, choir_tokenizer **tokenizer);

/* Reads the text of job.json, or sets NULL if the checkpoint has none. The caller frees it. */
choir_status choir__checkpoint_job(const char *folder, char **job);

/* A checkpoint's folder as programs have it. */

struct choir_checkpoint {
    char *dir;
    choir_checkpoint_opts opts;
    choir__saver *saver;
};

#endif
