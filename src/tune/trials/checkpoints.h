/* Checkpoints of trials that are paused and resumed.
 *
 *     DIR/NUMBER/checkpoint        what the trial writes and begins with: a file or a folder
 *     DIR/NUMBER/checkpoint.STEP   a copy, as it was after STEP: for the trial itself, and in
 * population-based training for copies of it
 *
 * A trial whose worker dies may have a checkpoint that is newer than the last report that was
 * read. If it resumed from there, a report would be missing, and the search would take another
 * course; so its segment begins again, with the copy. */
#ifndef CHOIR_TUNE_CHECKPOINTS_H
#define CHOIR_TUNE_CHECKPOINTS_H

#include <choir/study.h>

/* Returns the path of a trial's checkpoint, which the caller frees. */
char *choir__checkpoint_path(const char *dir, int64_t number);
/* Returns whether a program has written there. */
bool choir__checkpoint_is_there(const char *path);
/* Keeps a copy of a trial's checkpoint for a step, or notes that it has none
 * (checkpoint.STEP.none). Errors: I/O. */
choir_status choir__checkpoint_keep(const char *dir, int64_t number, int64_t step);
/* Deletes the copy for a step, if it exists. */
void choir__checkpoint_drop(const char *dir, int64_t number, int64_t step);
/* Puts a trial's checkpoint back as it was when its segment began: began_without: without a
 * checkpoint, or with the parent's; else the copy of that step. If no copy exists, the segment
 * had not begun. Errors: I/O. */
choir_status choir__checkpoint_restore(
    const char *dir, int64_t number, bool began_without, int64_t step);
/* Deletes runs of an earlier attempt in the trial's folder `dir`, where the line of a choir
 * train begins others by --save, --run or --log run:. One that resumes keeps them. Errors: I/O.
 */
choir_status choir__checkpoint_clear(char *const *line, const char *dir);
/* Gives a trial the copy of its parent's checkpoint, if it exists. Errors: I/O. */
choir_status choir__checkpoint_inherit(
    const char *dir, int64_t number, int64_t parent, int64_t step);

#endif
