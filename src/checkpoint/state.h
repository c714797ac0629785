/* state.json: the progress of the training, and the size and SHA-256 of every other file of the
 * folder.
 *
 *     {"format": "choir-checkpoint", "version": 1, "model": "gpt2:...", "step": 200, ...,
 *      "files": {"model.safetensors": {"bytes": 1234, "sha256": "..."}, ...}, "sha256": "..."}
 *
 * The last hash covers the rest of state.json, so that damage to this file is detected too. */
#ifndef CHOIR_STATE_H
#define CHOIR_STATE_H

#include <jansson.h>
#include "base/files/run_files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/format/safetensors.h"

#define CHOIR__MODEL_FILE "model.safetensors"
#define CHOIR__OPTIM_FILE "optimizer.safetensors"

/* Adds a file to the list that the state will contain. */
void choir__state_add_file(json_t *files, const char *name, const choir__digest *digest);

/* Hashes what state.json says of the training, without the files. Error: argument. */
choir_status choir__state_digest(const choir_train_state *state, char *hex);

/* Writes FOLDER/state.json. files: the files with weights; this function finds and adds all
 * others. Errors: argument (text that is not UTF-8), io. */
choir_status choir__state_write(
    const char *folder, const choir_train_state *state, json_t *files);

/* Reads FOLDER/state.json. files: receives the object "files", which the caller decrefs.
 * Errors: io, format. */
choir_status choir__state_read(const char *folder, choir_train_state *state, json_t **files);

/* Compares a file of the folder with its entry in files: its size and, if hashed, its SHA-256.
 * Errors: io, format. */
choir_status choir__state_check_file(
    const char *folder, const json_t *files, const char *name, bool hashed);
/* Compares the sizes of all files. */
choir_status choir__state_check_sizes(const char *folder, json_t *files);
/* Compares sizes and SHA-256 of this rank's share of the files, several at once (load.c). */
choir_status choir__state_verify(const char *folder, json_t *files, int rank, int world);

#endif
