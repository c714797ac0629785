/* A model loaded from a checkpoint, ready to run, for eval and generate. */
#ifndef CHOIR_SAVED_H
#define CHOIR_SAVED_H

#include "cli/job.h"

typedef struct choir__saved {
    choir_scope *run;
    choir_module *net;
    choir_model_info info;
    choir_tokenizer *tokenizer; /* of a language model */
    int64_t step;
    uint64_t seed; /* of its training */
} choir__saved;

/* Opens the model. The caller calls choir__saved_close also after a failure. */
choir_status choir__saved_open(const char *path, uint64_t seed, choir__saved *saved);
void choir__saved_close(choir__saved *saved);

#endif
