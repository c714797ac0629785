/* Models by name: those of `choir train --model`, in a program.
 *
 * Threads: those of the run. Collective: no. */
#ifndef CHOIR_MODELS_BY_NAME_H
#define CHOIR_MODELS_BY_NAME_H

#include <choir/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The model that `model` means, a module of the run:
 *
 *     "resnet50:classes=10"      a name and sizes (choir train --help lists them)
 *     "path/config.json"         a configuration in the published form, with new weights
 *     "path/to/folder"           the same, and the folder's weights (model.safetensors, or
 *                                model.safetensors.index.json), if it has any
 *
 * Never NULL: errors stick to the run: argument (no such model, sizes that do not fit), io,
 * format (naming file and key or tensor). What of a published configuration does not hold here,
 * and which of its weights start anew (a head for other classes), is told by *notes if notes is
 * not NULL: a line each, "" for nothing, for the caller to free().
 */
choir_module *choir_model(choir_scope *run, const char *model, char **notes);

#ifdef __cplusplus
}
#endif
#endif
