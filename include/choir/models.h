/* Models by name: programs can use the models of `choir train --model`.
 *
 * Threads: those of the run. Collective: no. */
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
 *     "path/to/folder"           a published configuration and the folder's weights
 *                                (model.safetensors, or model.safetensors.index.json), if any
 *
 * If notes is not NULL, *notes lists, one per line, settings of a published configuration that
 * Choir does not support and weights that start with new values (a head for other classes); ""
 * if there are none. The caller frees it.
 *
 * Never NULL. Errors stick to the run: argument (unknown model, sizes that do not fit), io,
 * format (naming file and key or tensor).
 */
choir_module *choir_model(choir_scope *run, const char *model, char **notes);

/* --- the same in steps: describe, open the data (data_open.h), describe again, build --- */

/** Name `index` of the list of models, and one line of help in *help unless that is NULL. NULL
 * beyond the end of the list. */
const char *choir_model_name(int index, const char **help);

/**
 * Describes a model given by name and sizes. Entries of *info that are 0 are filled in by the
 * model, the others are what the data is like, and the model is fitted to them; so a model can
 * be described once before data is opened, for the context it wants, and once more after that.
 * info->config becomes the model in full. Errors: argument (no such model, an unknown option, a
 * size that does not fit the data).
 */
choir_status choir_model_describe(const char *model, choir_model_info *info);

/** Builds the described model as a module of the run, with new weights. Never NULL; errors
 * stick to the run: argument, those of the layers. */
choir_module *choir_model_build(choir_scope *run, const choir_model_info *info);

/**
 * Stores in in[] what the module's forward takes of a micro-batch, and returns how many tensors
 * those are. y, the targets, is looked at for IMAGE_TO_TEXT alone, where each token is
 * predicted from those before it.
 */
int choir_model_inputs(
    const choir_model_info *info, choir_tensor *x, choir_tensor *y, choir_tensor *in[2]);

/** The module's output for a micro-batch: scores (B, classes) or (B, T, classes), or for
 * REGRESSION (B, output...). */
choir_tensor *choir_model_forward(
    const choir_model_info *info, choir_module *module, choir_tensor *x, choir_tensor *y);

/** The loss () of one micro-batch: cross entropy over the targets that count, or mean squared
 * error for REGRESSION. */
choir_tensor *choir_model_loss(
    const choir_model_info *info, choir_tensor *out, choir_tensor *y);

/** The two halves of a donut model: an image (B, 3, H, W) to states (B, S, E), and tokens (B,
 * T) with these states to scores (B, T, V). Error: argument (the module is no donut). */
choir_tensor *choir_donut_encode(choir_module *donut, choir_tensor *image);
choir_tensor *choir_donut_decode(choir_module *donut, choir_tensor *ids, choir_tensor *states);

/* --- published models: a config.json, and weights beside it --- */

/** Whether `model` means a file or folder and not a name of the list. */
bool choir_model_is_path(const char *model);

/** Whether a folder has weights that choir_model_load_weights takes. */
bool choir_model_has_weights(const char *folder);

/** Reads a config.json, or the one in a folder, and stores its model as text in *model,
 * and in *notes a line for each setting that does not hold here ("" for none). The caller frees
 * both with free(). Errors: io, format (by line or key), argument (a model that is not built).
 */
choir_status choir_model_read_config(const char *path, char **model, char **notes);

/**
 * Loads published weights into a module that choir_model_build made of *info. path is a
 * .safetensors file, a *.index.json, or a folder with such a file. If `fresh` is true, a head
 * may be missing in the files and keeps its new weights. *notes has a line for each entry
 * that was left out or keeps new weights; the caller frees it. Errors: io, format, naming file
 * and tensor; the module is changed only if the files are good.
 */
choir_status choir_model_load_weights(choir_module *module, const choir_model_info *info,
    const char *path, bool fresh, char **notes);

#ifdef __cplusplus
}
#endif
#endif
