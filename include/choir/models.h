/* Models by name: programs can use the models of `choir train --model`.
 *
 * Threads: the run's thread. Collective: no. */
#ifndef CHOIR_MODELS_BY_NAME_H
#define CHOIR_MODELS_BY_NAME_H

#include <choir/model_info.h>
#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes the model that `model` describes, as a module of the run:
 *
 *     "resnet50:classes=10"      a name and sizes (choir train --help lists them)
 *     "path/config.json"         a published configuration, with new weights
 *     "path/to/folder"           a published configuration with the folder's weights, if it
 *                                has any; weights that cannot be read are an error
 *
 * The inputs of choir_forward, by model. Ids are i64 below the vocabulary's size V, and T is at
 * most the model's context:
 *
 *     toy, mlp                  x (B, in...) f32                     -> (B, out)
 *     cnn, resnet, alexnet, vit images (B, 3 or 1, H, W) f32         -> (B, classes)
 *     lstm                      ids (B, T)                           -> (B, T, V),
 *                               or sequences (B, T, in) f32          -> (B, T, out)
 *     gpt2, llama, and its relatives (mistral, qwen2, qwen3, gemma, gemma2, gemma3, phi3,
 *     smollm3)                  ids (B, T); causal: position t sees positions 0 ... t.
 *                               Optionally the number of each position's document (B, T)
 *                               i64, then its position there (B, T) i64: each position sees
 *                               only its own document                -> (B, T, V)
 *     bert, roberta, distilbert ids (B, T). Optionally token types (B, T) i64 (NULL: 0),
 *                               then a mask (B, T) of any dtype, 1 for a token and 0 for
 *                               padding, which no position attends to (NULL: all are
 *                               tokens). distilbert ignores types    -> (B, T, V),
 *                               or with classes                      -> (B, classes),
 *                               or with classes and words            -> (B, T, classes)
 *     donut                     images (B, 3, H, W) f32, ids (B, T)  -> (B, T, V)
 *
 * If notes is not NULL, *notes receives a text for the caller to free, with one line per note:
 * settings of a published configuration that Choir does not support, and weights that start
 * with new values (a head for other classes, or all weights if the folder has none). "" if
 * nothing is to be noted.
 *
 * Never NULL. Errors stick to the run: argument (unknown model, sizes that do not fit), io,
 * format (naming file and key or tensor).
 */
choir_module *choir_model(choir_scope *run, const char *model, char **notes);

/** Says when the head of a model starts with new weights. */
typedef enum choir_head {
    CHOIR_HEAD_KEPT,           /* never: the files contain the head */
    CHOIR_HEAD_NEW_IF_MISSING, /* when the files lack it */
    CHOIR_HEAD_REPLACED        /* when the files lack it, or theirs has another shape */
} choir_head;

typedef struct choir_model_opts {
    int64_t classes;     /* classes of a new head, for fine-tuning; 0: the model's own head */
    const char *weights; /* file or folder to start from; NULL: the folder's, if it has any */
    bool strict;  /* true: the files must have exactly the model's weights, also the head's */
    char **notes; /* as for choir_model; NULL: no notes */
} choir_model_opts;

choir_model_opts choir_model_defaults(void); /* the model's own head and weights */

/** Like choir_model, with options: choir_model_with(run, "path/to/bert", opts), opts.classes =
 * 3, is a BERT that classifies sequences, with the folder's encoder and a new head. A path may
 * also have options of its own, "path/to/bert:classes=3,dropout=0.2". */
choir_module *choir_model_with(choir_scope *run, const char *model, choir_model_opts opts);

/* --- in steps: describe, open the data (data_open.h), describe again, build --- */

/** Returns the name of model `index`, or NULL beyond the end of the list. Stores one line of
 * help in *help unless help is NULL. */
const char *choir_model_name(int index, const char **help);

/**
 * Describes a model given by name and sizes. The model fills in the entries of *info that are
 * 0; the others describe the data, and the model is fitted to them. So a model can be described
 * once before the data is opened, to find its context, and again after that. info->config
 * receives the model with all options. Errors: argument (an unknown model or option, a size
 * that does not fit the data).
 */
CHOIR_CHECKED choir_status choir_model_describe(const char *model, choir_model_info *info);

/** Builds the described model as a module of the run, with new weights. Never NULL; errors
 * stick to the run: argument, errors of the layers. */
choir_module *choir_model_build(choir_scope *run, const choir_model_info *info);

enum { CHOIR_MODEL_INPUTS = 3 }; /* largest number of inputs of a model's forward */

/**
 * Stores the inputs of the module's forward for a micro-batch in in[], and returns their
 * number: for x (B, 3, T) the ids, token types and mask of labelled texts, or the ids,
 * documents and positions of packed texts; for IMAGE_TO_TEXT the image and the targets y
 * shifted by one, since each token is predicted from the tokens before it; else x.
 */
int choir_model_inputs(const choir_model_info *info, choir_tensor *x, choir_tensor *y,
    choir_tensor *in[CHOIR_MODEL_INPUTS]);

/** Returns the module's output for a micro-batch: scores (B, classes) or (B, T, classes), or
 * for REGRESSION (B, output...). */
choir_tensor *choir_model_forward(
    const choir_model_info *info, choir_module *module, choir_tensor *x, choir_tensor *y);

/** Returns the loss () of one micro-batch: cross entropy over the targets that count, mean
 * squared error for REGRESSION, or binary cross entropy for MULTI_LABEL. */
choir_tensor *choir_model_loss(
    const choir_model_info *info, choir_tensor *out, choir_tensor *y);

/** Returns whether some targets of the task are ignored: words that are not masked, padding. If
 * so, the mean of the micro-batches' means depends on the number of micro-batches;
 * choir_model_loss_over avoids this. */
bool choir_model_ignores(const choir_model_info *info);

/**
 * Returns choir_loss_divisor of the targets (count) of all micro-batches that this rank runs in
 * the step; NULL if all targets of the task count, so that the mean of the micro-batches' means
 * is right. Unless it returns NULL, it is collective, like choir_loss_divisor.
 */
choir_tensor *choir_model_divisor(
    const choir_model_info *info, choir_tensor *const *y, int count);
/** Like choir_model_divisor; unless counted is NULL, also stores in *counted the number of the
 * step's targets that count, () f64 (see choir_loss_divisor_counted), or NULL if all targets of
 * the task count. */
choir_tensor *choir_model_divisor_counted(
    const choir_model_info *info, choir_tensor *const *y, int count, choir_tensor **counted);

/** Returns the loss () of one micro-batch, scaled so that the mean of the step's losses is the
 * mean over all targets that count. divisor: the result of choir_model_divisor, on the device
 * of out; NULL: as choir_model_loss. */
choir_tensor *choir_model_loss_over(
    const choir_model_info *info, choir_tensor *out, choir_tensor *y, choir_tensor *divisor);

/** The two halves of a donut model: choir_donut_encode maps an image (B, 3, H, W) to states (B,
 * S, E), and choir_donut_decode maps tokens (B, T) and these states to scores (B, T, V). Error:
 * argument (the module is not a donut). */
choir_tensor *choir_donut_encode(choir_module *donut, choir_tensor *image);
choir_tensor *choir_donut_decode(choir_module *donut, choir_tensor *ids, choir_tensor *states);

/* --- published models: a config.json, and weights next to it --- */

/** Returns whether `model` is a path to a file or folder rather than a model's name. Options
 * may follow the path: "path/to/bert:classes=3". */
bool choir_model_is_path(const char *model);

/** Returns the path without its options, for the caller to free with free(). */
char *choir_model_path(const char *model);

/** Returns CHOIR_HEAD_REPLACED if the model's options name its classes, "...:classes=3", and
 * CHOIR_HEAD_NEW_IF_MISSING otherwise. `choir train` treats the head of published weights in
 * this way. */
choir_head choir_model_head(const char *model);

/** Returns whether a folder has a file with a known name of weights. choir_model_load_weights
 * refuses files that it cannot read. */
bool choir_model_has_weights(const char *folder);

/** Returns NULL if a folder has weights; otherwise the note that a model made from the folder's
 * configuration starts from random values, for the caller to free. */
char *choir_model_weights_note(const char *folder);

/** Checks the names, headers and sizes of files of weights, before a module exists. path: as
 * for choir_model_load_weights. Errors: io, format, naming the file. */
CHOIR_CHECKED choir_status choir_model_check_weights(const char *path);

/** Reads a config.json, or the one in a folder, with the options that follow the path, and
 * stores its model as text in *model, and in *notes one line per setting that Choir does not
 * support ("" for none). The caller frees both with free(). Errors: io, format (naming line or
 * key), argument (a model that Choir lacks). */
CHOIR_CHECKED choir_status choir_model_read_config(
    const char *path, char **model, char **notes);

/** Reads the names that a config.json, or the one in a folder, gives to the classes of a
 * classifier (id2label). Stores no names if it gives no names, or only LABEL_0, LABEL_1, ...
 * The caller frees them. Errors: io, format. */
CHOIR_CHECKED choir_status choir_model_class_names(const char *path, choir_class_names *names);

/**
 * Loads published weights into a module that choir_model_build made of *info. path is a
 * .safetensors file, a *.index.json, or a folder with model.safetensors, with one variant of it
 * (model.fp16.safetensors), with an index, or with the parts of PyTorch's distributed writer.
 * *notes receives one line per entry that was skipped or keeps new weights; the caller frees
 * it. Errors: io, format, naming file and tensor; the module is changed only if the files are
 * good.
 */
CHOIR_CHECKED choir_status choir_model_load_weights(choir_module *module,
    const choir_model_info *info, const char *path, choir_head head, char **notes);

#ifdef __cplusplus
}
#endif
#endif
