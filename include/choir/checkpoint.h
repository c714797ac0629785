/* Weights and training state on disk.
 *
 * Weights are safetensors files, which PyTorch's users read as they are: parameters and buffers
 * under their full names, row-major (images' weights as logically OIHW), tied weights once. A
 * training checkpoint is a folder of weights, optimizer state and a JSON of everything else.
 * Writing is atomic: a kill, a full disk or a power cut at any moment leaves what was there
 * before.
 *
 * Threads: those of the run. Collective: none; under several ranks rank 0 saves, all load. */
#ifndef CHOIR_CHECKPOINT_H
#define CHOIR_CHECKPOINT_H

#include <choir/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Writes parameters and buffers to one safetensors file. Errors: io, naming the file and the
 * cause. */
choir_status choir_save(choir_module *module, const char *path);

/** Reads them back, by name. f16, bf16 and f64 tensors are converted to f32. Errors: io, format
 *  (truncated, corrupt, lying header; missing, extra, misshaped or non-finite tensors), naming
 * file and tensor; the module is changed only if the whole file is good. */
choir_status choir_load(choir_module *module, const char *path);

#ifdef __cplusplus
}
#endif
#endif
