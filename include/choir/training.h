/* A training run that can be saved and resumed. One checkpoint holds the weights, the
 * optimizer, the gradient scaler, the position in the data, the step, and the description of
 * the model.
 *
 *     choir_training t = {.module = net, .optim = opt, .loader = data, .info = &info};
 *     choir_train_state s;
 *     choir_check(choir_training_open("run", opts, &t, &s, &checkpoint));
 *     while (s.step < 1000) {
 *         ...                                            (a step; its loss)
 *         s.step++;
 *     }
 *     choir_check(choir_training_save(checkpoint, &t, &s, CHOIR_SAVE_NOW));
 *
 * A resumed run has the same bits as a run that was never interrupted: everything random
 * follows from the seed and the step. `choir train` writes checkpoints of this kind.
 *
 * Threads: the run's thread. Collective, over the group: choir_training_open, _save and
 * _resume. */
#ifndef CHOIR_TRAINING_H
#define CHOIR_TRAINING_H

#include <choir/amp.h>
#include <choir/beside.h>
#include <choir/checkpoint.h>
#include <choir/data.h>
#include <choir/model_info.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CHOIR_EVAL_REGULAR = 1, /* an evaluation at its regular interval of steps */
    CHOIR_EVAL_LAST = 2     /* the evaluation at the training's end */
};

/** The state of a training: everything in a checkpoint except the tensors. */
typedef struct choir_train_state {
    char model[CHOIR_MODEL_TEXT]; /* model with all options: "gpt2:layers=4,..." */
    int64_t step;                 /* steps done */
    int64_t position;             /* micro-batches of the job consumed so far */
    uint64_t seed;
    int64_t batch_size, microbatches;
    int64_t slices; /* T, see choir/tensor_parallel.h; 0: unknown */
    int64_t optimizer_steps;
    char optimizer[256];               /* optimizer as text: "adamw:beta2=0.99" */
    double loss, eval_loss, best_loss; /* NaN: unknown */
    int64_t eval_due;                  /* evaluations of this step still to be done */
    choir_shape input, output;         /* shapes of one sample */
    int64_t classes;
    choir_task task;
    char strategy[256]; /* strategy of the training; "": unknown */
    int64_t world;      /* ranks that saved; 0: unknown */
    char amp[16];       /* mixed precision: "fp16"; "": none, or unknown */
    char bits[16]; /* class of bits of the products (choir_cpu_bits), or "cuda"; "": unknown */
    double loss_scale; /* scale of gradients; 0 or less: gradients were not scaled */
    int64_t scale_clean, scale_in_a_row, skipped_steps; /* see choir_scaler_state */
    /* best: the program's own measure of the best checkpoint; best_regular: the best measure of
     * regular evaluations; NaN: not yet. stale: regular evaluations since best_regular */
    double best, best_regular;
    int64_t stale;
    double base_lr; /* learning rate before the schedule; NaN: the program's */
    double plateau_best;
    int64_t plateau_bad, plateau_cooling; /* see choir_plateau */
    double epoch_loss;                    /* sum of the losses of the epoch's steps */
    /* number of the epoch's steps without targets, and so without loss */
    int64_t epoch_without;
    double pixel_mean, pixel_deviation; /* see choir_model_info; deviation 0: unknown */
    int64_t pixel_resize;               /* see choir_model_info */
} choir_train_state;

/** Returns the state before the first step, with unknown losses. */
choir_train_state choir_train_state_none(void);

/** The objects that are saved and restored. The caller keeps owning them. */
typedef struct choir_training {
    choir_module *module;             /* module, bare or wrapped by a strategy */
    choir_optim *optim;               /* NULL: only weights */
    choir_scaler *scaler;             /* NULL: gradients are not scaled */
    choir_loader *loader;             /* NULL: the caller tracks the position in the data */
    const choir_model_info *info;     /* NULL: the model has no description */
    const choir_tokenizer *tokenizer; /* NULL: none; must exist until a save is done */
    /* names of a classifier's classes, for config.json; NULL: none; must exist until a save is
     * done */
    const choir_class_names *classes;
    /* the other files of the published model, or of the checkpoint, that the training started
     * from. Saves copy them into checkpoints, with the keys of config.json that Choir does not
     * use. With a tokenizer, files about tokens come from the tokenizer's folder, and the
     * model's other files are copied if they fit the tokenizer, that is, name no other tokens
     * and no other end of a text. The tokenizer's end of a text is added to eos_token_id in
     * config.json and generation_config.json, and ids beyond the vocabulary are removed there.
     * NULL: no files; must exist until a save is done */
    const choir_beside *beside;
    const char *job; /* text about the program's options, for job.json; NULL: none */
    bool recut;      /* takes a checkpoint of another number of slices; the numbers change */
} choir_training;

enum {
    CHOIR_SAVE_BEST = 1, /* the best so far: DIR/best names it, and it is not deleted */
    CHOIR_SAVE_NOW = 2   /* written when the call returns, even if the checkpoint is async */
};

/** Opens a folder of checkpoints and, if there is a latest one, resumes the training from it;
 * otherwise *state is choir_train_state_none(). Errors: as choir_checkpoint_open and
 * choir_training_resume. */
CHOIR_CHECKED choir_status choir_training_open(const char *dir, choir_checkpoint_opts opts,
    const choir_training *training, choir_train_state *state, choir_checkpoint **checkpoint);

/**
 * Saves the training as DIR/step-N, where N is state->step. The caller fills in the step, the
 * losses, and the names of optimizer, strategy and mixed precision. The objects supply the
 * model, seed, batch, position and scale, and the group supplies `world` unless it is set.
 * Otherwise like choir_checkpoint_save.
 */
CHOIR_CHECKED choir_status choir_training_save(choir_checkpoint *checkpoint,
    const choir_training *training, const choir_train_state *state, unsigned flags);

/**
 * Loads a checkpoint into the training's objects. path is DIR (its latest checkpoint), the
 * folder of one step, or DIR/best. The run's step counter and the loader are set to the step
 * after it. Stores the saved state in *state unless state is NULL. group is as in
 * choir_checkpoint_opts.
 *
 * Errors: argument (another model, batch, number of micro-batches or seed), and as
 * choir_checkpoint_load. Nothing changes on any rank unless all ranks succeed.
 */
CHOIR_CHECKED choir_status choir_training_resume(const char *path,
    const choir_training *training, choir_group *group, choir_train_state *state);

/** Reads only the state, without any objects. Errors: io, format. Collective: no. */
CHOIR_CHECKED choir_status choir_training_read(const char *path, choir_train_state *state);

/** Reads the tokenizer saved with a checkpoint, or stores NULL if it has none. The caller frees
 * it. Errors: io, format. Collective: no. */
CHOIR_CHECKED choir_status choir_training_tokenizer(
    const char *path, choir_tokenizer **tokenizer);

/** Reads the text that choir_training.job had when the checkpoint was saved, or stores NULL if
 * it had none. `choir train` stores all options of its job and the hash of its data there. The
 * caller frees the text. Errors: io, format. Collective: no. */
CHOIR_CHECKED choir_status choir_training_job(const char *path, char **job);

/** Stores in found (PATH_MAX bytes) the folder or .safetensors file that path refers to.
 * Errors: io (no checkpoint found). Collective: no. */
CHOIR_CHECKED choir_status choir_training_find(const char *path, char *found);

/** Returns whether a save was completed since the last time that this function returned true,
 * and stores the save's step in *step. Collective: no. */
bool choir_checkpoint_saved(choir_checkpoint *checkpoint, int64_t *step);

/** Stores on rank 0 the SHA-256, in hex, of all parameters and buffers in name order as
 * little-endian f32, each NaN as 0x7fc00000, so that two runs can be compared. group: the
 * module's ranks, if it is sharded; NULL: this process has the whole module. Collective over
 * the group. */
CHOIR_CHECKED choir_status choir_weights_sha256(
    choir_module *module, choir_group *group, char hex[65]);

/** Stores the SHA-256, in hex, of the files of published weights at a path: a .safetensors
 * file, an index of several, or a folder. For a file over 256 MiB it covers the size and 256
 * evenly spread MiB. Errors: io. Collective: no. */
CHOIR_CHECKED choir_status choir_weight_files_sha256(const char *path, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
