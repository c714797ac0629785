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
 * A save writes DIR/.new-PID, syncs it, renames it to its step, then moves `latest` (and
 * `best`), then removes the steps that neither names. Leftovers of killed saves (.new-*) are
 * removed by the next. */
#ifndef CHOIR_CHECKPOINT_INTERNAL_H
#define CHOIR_CHECKPOINT_INTERNAL_H

#include <choir/checkpoint.h>
#include <choir/data.h>

typedef struct choir__train_state {
    char model[512];  /* in full: "gpt2:layers=4,..." */
    int64_t step;     /* steps done */
    int64_t position; /* micro-batches of the job consumed so far */
    uint64_t seed;
    int64_t batch_size, microbatches;
    int64_t optimizer_steps;
    char optimizer[256];               /* as given: "adamw:beta2=0.99" */
    double loss, eval_loss, best_loss; /* NaN: unknown */
    choir_shape input, output;         /* of a sample: what the model was built for */
    int64_t classes;
    int task;
} choir__train_state;

/* Saves under DIR (made if missing). best: this is the best so far. optim and tokenizer may be
 * NULL. Saving a step that is there replaces it. Errors: io (also when another process saves
 * there); nonfinite: weights that choir_load would refuse do not replace good ones. */
choir_status choir__checkpoint_save(const char *dir, const choir__train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer, bool best);

/* Finds the checkpoint that PATH means: DIR with a `latest`, a step's own folder, DIR/best,
 * or a .safetensors file (which has weights alone). found: PATH_MAX bytes, the folder or
 * file. */
choir_status choir__checkpoint_find(const char *path, char *found);

/* Reads state.json of a checkpoint's folder, and compares size and SHA-256 of every file with
 * what it says. Errors: io, format, naming file and key. */
choir_status choir__checkpoint_state(const char *folder, choir__train_state *state);

/* Weights; with optim not NULL its state too (and its step count). The files it reads are
 * compared with state.json; nothing is changed unless all is good. Errors: io, format. */
choir_status choir__checkpoint_load(
    const char *folder, choir_module *module, choir_optim *optim);

/* The tokenizer, or NULL if the checkpoint has none. */
choir_status choir__checkpoint_tokenizer(const char *folder, choir_tokenizer **tokenizer);

/* SHA-256 of all parameters and buffers in name order as little-endian f32, in hex. */
choir_status choir__weights_sha256(choir_module *module, char hex[65]);

#endif
