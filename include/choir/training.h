/* A training run that is saved and gone on with: weights, optimizer, gradient scaler, the place
 * in the data, the step, and what the run was made of, in one checkpoint.
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
 * A resumed run goes on with the bits of one that was never interrupted: everything random
 * follows from the seed and the step. A checkpoint of `choir train` is one of these.
 *
 * Threads: those of the run. Collective, over the group: choir_training_open, _save and
 * _resume. */
#ifndef CHOIR_TRAINING_H
#define CHOIR_TRAINING_H

#include <choir/amp.h>
#include <choir/checkpoint.h>
#include <choir/data.h>
#include <choir/model_info.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The state of a training: everything in a checkpoint except the tensors. */
typedef struct choir_train_state {
    char model[512];  /* in full: "gpt2:layers=4,..." */
    int64_t step;     /* steps done */
    int64_t position; /* micro-batches of the job consumed so far */
    uint64_t seed;
    int64_t batch_size, microbatches;
    int64_t optimizer_steps;
    char optimizer[256];               /* in words, as "adamw:beta2=0.99" */
    double loss, eval_loss, best_loss; /* NaN: unknown */
    choir_shape input, output;         /* of a sample: what the model was built for */
    int64_t classes;
    choir_task task;
    char strategy[256]; /* it was trained with, and the ranks that saved; "" and 0: unknown */
    int64_t world;
    char amp[16];      /* mixed precision: "fp16"; "": none, or unknown */
    double loss_scale; /* of gradients; not above 0: they were not scaled */
    int64_t scale_clean, scale_in_a_row, skipped_steps; /* see choir_scaler_state */
} choir_train_state;

/** A state of no steps, with unknown losses. */
choir_train_state choir_train_state_none(void);

/** The objects that are saved and restored. They stay the caller's. */
typedef struct choir_training {
    choir_module *module;             /* bare, or as a strategy has wrapped it */
    choir_optim *optim;               /* NULL: weights alone */
    choir_scaler *scaler;             /* NULL: gradients are not scaled */
    choir_loader *loader;             /* NULL: the place in the data is the caller's business */
    const choir_model_info *info;     /* NULL: the model is not named */
    const choir_tokenizer *tokenizer; /* NULL: none; stays until a save is done */
} choir_training;

enum {
    CHOIR_SAVE_BEST = 1, /* the best so far: DIR/best names it, and it is kept */
    CHOIR_SAVE_NOW = 2   /* written when the call returns, also where the checkpoint is async */
};

/** Opens a folder of checkpoints and, if there is a latest one, resumes the training from it;
 * otherwise *state is that of no steps. Errors: those of choir_checkpoint_open and
 * choir_training_resume. */
choir_status choir_training_open(const char *dir, choir_checkpoint_opts opts,
    const choir_training *training, choir_train_state *state, choir_checkpoint **checkpoint);

/**
 * Saves the training as DIR/step-N, N being state->step. The caller fills in the step, losses,
 * and the names of optimizer, strategy and mixed precision; entries that the objects know
 * (model, seed, batch, position, scale) are taken from them, and `world` from the group unless
 * it is set. Otherwise as choir_checkpoint_save.
 */
choir_status choir_training_save(choir_checkpoint *checkpoint, const choir_training *training,
    const choir_train_state *state, unsigned flags);

/**
 * Loads the checkpoint that path means into the training's objects: DIR with a latest one, a
 * step's own folder, or DIR/best. The run's counter of steps and the loader go to the step
 * after it. *state, unless state is NULL: as it was saved. group as in choir_checkpoint_opts.
 *
 * Errors: argument (another model, batch, cut or seed), and those of choir_checkpoint_load;
 * nothing is changed on any rank unless all is good.
 */
choir_status choir_training_resume(const char *path, const choir_training *training,
    choir_group *group, choir_train_state *state);

/** Reads the state alone, before there are any objects. Errors: io, format. Collective: no. */
choir_status choir_training_read(const char *path, choir_train_state *state);

/** The tokenizer saved with a checkpoint, for the caller to free; NULL if there is none.
 * Errors: io, format. Collective: no. */
choir_status choir_training_tokenizer(const char *path, choir_tokenizer **tokenizer);

/** Stores the folder, or .safetensors file, that path means in found, PATH_MAX bytes. Errors:
 * io (there is no checkpoint). Collective: no. */
choir_status choir_training_find(const char *path, char *found);

/** Whether a save was completed since this function last said so: its step. Collective: no. */
bool choir_checkpoint_saved(choir_checkpoint *checkpoint, int64_t *step);

/** SHA-256 in hex, on rank 0, of all parameters and buffers in name order as little-endian f32:
 * two runs can be compared by it. group: the module's ranks, if it is sharded; NULL: this
 * process has all of it. Collective over the group. */
choir_status choir_weights_sha256(choir_module *module, choir_group *group, char hex[65]);

#ifdef __cplusplus
}
#endif
#endif
