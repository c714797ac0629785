/* A model out of a checkpoint, ready to run: what eval and generate start from. */
#ifndef CHOIR_SAVED_H
#define CHOIR_SAVED_H

#include "cli/job.h"

typedef struct choir__saved {
    choir_scope *run;
    choir_module *net;
    choir_model_info info;
    choir_tokenizer *tokenizer; /* of a language model */
    int64_t step;
    uint64_t seed; /* it was trained with */
} choir__saved;

/* On failure, what was opened is left for choir__saved_close. */
choir_status choir__saved_open(const char *path, uint64_t seed, choir__saved *saved);
void choir__saved_close(choir__saved *saved);

#endif
