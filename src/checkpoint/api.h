/* A checkpoint's folder as programs have it. */
#ifndef CHOIR_CHECKPOINT_API_H
#define CHOIR_CHECKPOINT_API_H

#include "checkpoint/checkpoint.h"

struct choir_checkpoint {
    char *dir;
    choir_checkpoint_opts opts;
    choir__saver *saver;
};

#endif
