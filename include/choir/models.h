/* Models by name: programs can use the models of `choir train --model`.
 *
 * Threads: those of the run. Collective: no. */
#ifndef CHOIR_MODELS_BY_NAME_H
#define CHOIR_MODELS_BY_NAME_H

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

#ifdef __cplusplus
}
#endif
#endif
