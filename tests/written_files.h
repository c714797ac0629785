/* Whole safetensors files and checkpoints in one call, by the functions that write them piece
 * by piece. */
#ifndef CHOIR_TEST_WRITTEN_FILES_H
#define CHOIR_TEST_WRITTEN_FILES_H

#include <string.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/format/safetensors.h"

static inline choir_status written_from_memory(void *arg, int i, const void **data)
{
    *data = ((const choir__st_tensor *)arg)[i].data;
    return CHOIR_OK;
}

static inline choir_status st_write(
    const char *path, const choir__st_tensor *tensors, int count, const char *const *metadata)
{
    choir__digest digest;
    return choir__st_stream(
        path, tensors, count, metadata, written_from_memory, (void *)tensors, &digest);
}

static inline const choir__st_tensor *st_find(const choir__st_file *file, const char *name)
{
    for (int i = 0; i < choir__st_count(file); i++)
        if (!strcmp(choir__st_get(file, i)->name, name))
            return choir__st_get(file, i);
    return NULL;
}

/* Saves a checkpoint from this process alone, and returns when it is complete. */
static inline choir_status save_checkpoint(const char *dir, const choir_train_state *state,
    choir_module *module, choir_optim *optim, const choir_tokenizer *tokenizer, bool best)
{
    choir__save_args args = {.dir = dir,
        .state = state,
        .module = module,
        .optim = optim,
        .tokenizer = tokenizer,
        .best = best};
    choir__saver *saver;
    choir_status status = choir__saver_new(NULL, &saver);
    if (status == CHOIR_OK) {
        status = choir__saver_save(saver, &args);
        choir__saver_free(saver);
    }
    return status;
}

#endif
