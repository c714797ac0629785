/* A process that outlives the search by a moment: when the search dies, however it dies, the
 * warden kills what its trials have started.
 *
 * The kernel kills a trial's first process together with the search, but not the processes
 * that it has started itself. They would continue to write to the trial's checkpoint while
 * another search runs the trial. */
#ifndef CHOIR_TUNE_WARDEN_H
#define CHOIR_TUNE_WARDEN_H

#include <sys/types.h>

#include "base/base.h"

/* In the environment of a trial's processes: their search and trial, "PID/NUMBER". */
#define CHOIR__TRIAL_MARK "CHOIR_TRIAL_OF="

typedef struct choir__warden choir__warden;

/* Starts a warden of at most `most` process groups. Error: I/O. */
choir_status choir__warden_new(int most, choir__warden **warden);
void choir__warden_watch(choir__warden *w, pid_t group);
void choir__warden_forget(choir__warden *w, pid_t group);
/* Ends the warden, which kills the groups that it watches; NULL is allowed. */
void choir__warden_free(choir__warden *w);

#endif
