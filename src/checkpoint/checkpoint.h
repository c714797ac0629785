/* A training checkpoint: a folder that appears whole or not at all.
 *
 *     DIR/step-00000200/model.safetensors       parameters and buffers
 *                       optimizer.safetensors   optimizer state, "exp_avg.NAME" ...
 *                       tokenizer.json          of a language model
 *                       config.json             the model in its published form, if it has one
 *                       state.json              everything else; written last
 *     DIR/latest -> step-00000200               symbolic links, replaced by rename
 *     DIR/best   -> step-00000150               lowest validation loss
 *
 * Where several ranks write, each has files of its own, model-00001-of-00004.safetensors and so
 * on (plan.h), with an index beside them in the form that others read:
 *
 *     model.safetensors.index.json              {"weight_map": {"TENSOR": "FILE", ...}}
 *
 * A save writes DIR/.new-PID, syncs it, renames it to its step, then moves `latest` (and
 * `best`), then removes the steps that neither names. Leftovers of killed saves (.new-*) are
 * removed by the next. */
#ifndef CHOIR_CHECKPOINT_INTERNAL_H
#define CHOIR_CHECKPOINT_INTERNAL_H

#include <choir/training.h>

/* --- saving (save.c) --- */

/* Of what all ranks have, bytes that are worth a file of their own. */
#define CHOIR__FILE_BYTES ((int64_t)64 << 20)

/* Saves, one after another: what a save in flight needs. */
typedef struct choir__saver choir__saver;

typedef struct choir__save_args {
    const char *dir; /* made if missing */
    const choir_train_state *state;
    choir_module *module;
    choir_optim *optim;               /* may be NULL */
    const choir_tokenizer *tokenizer; /* may be NULL; stays until the save is done */
    bool best;                        /* this is the best so far */
    bool async;    /* return when there is a copy, and let a thread do the rest */
    int64_t least; /* bytes that are worth a file of their own, of what all ranks have */
} choir__save_args;

/* group: of all ranks that save together; NULL: this process alone. Collective. */
choir_status choir__saver_new(choir_group *group, choir__saver **saver);
/* Waits for the save before, and saves. Saving a step that is there replaces it. All ranks
 * return the same: if one of them fails all do, and the checkpoint before stands. Collective.
 * Errors: those of the save before; io (also when another process saves there); nonfinite:
 * weights that choir_load would refuse do not replace good ones; those of the group. */
choir_status choir__saver_save(choir__saver *saver, const choir__save_args *args);
/* Waits for the save in flight, if there is one. Collective. */
choir_status choir__saver_wait(choir__saver *saver);
/* Whether a save has been completed since the last call that said so: its step. */
bool choir__saver_saved(choir__saver *saver, int64_t *step);
/* Waits, and forgets what has failed. */
void choir__saver_free(choir__saver *saver);

/* By this process alone, at once. */
choir_status choir__checkpoint_save(const char *dir, const choir_train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer, bool best);

/* --- finding and loading --- */

/* Finds the checkpoint that PATH means: DIR with a `latest`, a step's own folder, DIR/best,
 * or a .safetensors file (which has weights alone). found: PATH_MAX bytes, the folder or
 * file. */
choir_status choir__checkpoint_find(const char *path, char *found);

/* Reads state.json of a checkpoint's folder, and compares every file's size with what it says.
 * Errors: io, format, naming file and key. */
choir_status choir__checkpoint_state(const char *folder, choir_train_state *state);

/* Weights; with optim not NULL its state too (and its step count): what this rank has of them,
 * whoever saved them. Sizes and SHA-256 of all files are compared with state.json, by the ranks
 * of group together; nothing is changed on any unless all is good. group may be NULL.
 * Collective. Errors: io, format. */
choir_status choir__checkpoint_load(
    const char *folder, choir_module *module, choir_optim *optim, choir_group *group);

/* The tokenizer, or NULL if the checkpoint has none. */
choir_status choir__checkpoint_tokenizer(const char *folder, choir_tokenizer **tokenizer);

#endif
