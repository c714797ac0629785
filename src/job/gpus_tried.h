/* Which GPUs script/gpu has tried. Between ranks with one GPU each, NCCL is the default there,
 * and shared memory elsewhere: NCCL's engine has run on few machines. The script leaves a
 * stamp, $XDG_STATE_HOME/choir/gpus-tried.HOST (by default in ~/.local/state), with the version
 * and a line for each GPU; another version, card or driver has to be tried again. */
#ifndef CHOIR_JOB_GPUS_TRIED_H
#define CHOIR_JOB_GPUS_TRIED_H

#include "job/job.h"

/* `choir __gpus_tried`: script/gpu has passed on this machine's GPUs. Returns the exit status.
 */
int choir__gpus_tried_command(void);

/* Returns the backend of a job's groups, where `gpus` lists the first device of each rank
 * (cuda:0,cuda:1) or is NULL: the one that was asked for, nccl where it is the default, or
 * NULL, the group's own choice. *note: why that is not nccl, for people, or NULL. */
const char *choir__gpus_backend(const choir__job *job, const char *gpus, const char **note);

#endif
