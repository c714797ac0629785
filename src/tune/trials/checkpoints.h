/* Checkpoints of trials that stop and go on.
 *
 *     DIR/NUMBER/checkpoint        what the trial writes and begins with: a file or a folder
 *     DIR/NUMBER/checkpoint.STEP   a copy, as it was after STEP: for the trial while it goes
 * on, and in population-based training for copies of it
 *
 * A trial whose worker dies may have a checkpoint from behind the last report that was read of
 * it. If it went on from there, a report would be missing, and the search would take another
 * course; so its segment begins again, with the copy. */
#ifndef CHOIR_TUNE_CHECKPOINTS_H
#define CHOIR_TUNE_CHECKPOINTS_H

#include <choir/study.h>

/* Returns the path of a trial's checkpoint, which the caller frees. */
char *choir__checkpoint_path(const char *dir, int64_t number);
/* Returns whether a program has written there. */
bool choir__checkpoint_is_there(const char *path);
/* Keeps a copy of a trial's checkpoint as that of a step, or notes that there is none
 * (checkpoint.STEP.none). Errors: I/O. */
choir_status choir__checkpoint_keep(const char *dir, int64_t number, int64_t step);
/* Deletes that copy, if there is one. */
void choir__checkpoint_drop(const char *dir, int64_t number, int64_t step);
/* Puts a trial's checkpoint back as it was when its segment began: began_without: there was
 * none, or the parent's; else the copy of that step. If there is no copy, the segment had not
 * begun. Errors: I/O. */
choir_status choir__checkpoint_restore(
    const char *dir, int64_t number, bool began_without, int64_t step);
/* Gives a trial the copy of its parent's checkpoint, if there is one. Errors: I/O. */
choir_status choir__checkpoint_inherit(
    const char *dir, int64_t number, int64_t parent, int64_t step);

#endif
