/* Checkpoints of trials that stop and go on.
 *
 *     DIR/NUMBER/checkpoint        what the trial writes and begins with: a file or a folder
 *     DIR/NUMBER/checkpoint.STEP   population-based training: a copy, as it was after STEP */
#ifndef CHOIR_TUNE_CHECKPOINTS_H
#define CHOIR_TUNE_CHECKPOINTS_H

#include <choir/study.h>

/* Returns the path of a trial's checkpoint, which the caller frees. */
char *choir__checkpoint_path(const char *dir, int64_t number);
/* Returns whether a program has written there. */
bool choir__checkpoint_is_there(const char *path);
/* Keeps a copy of a trial's checkpoint as that of a step. Errors: I/O. */
choir_status choir__checkpoint_keep(const char *dir, int64_t number, int64_t step);
/* Gives a trial the copy of its parent's checkpoint, if there is one. Errors: I/O. */
choir_status choir__checkpoint_inherit(
    const char *dir, int64_t number, int64_t parent, int64_t step);

#endif
