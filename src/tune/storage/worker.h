/* Workers: processes that run trials of a stored study.
 *
 * A worker's name tells a process on the same machine whether the worker is alive, at once: it
 * holds the machine's boot, the namespace of process numbers, the process's number and the time
 * of its start. Other machines go by heartbeats. */
#ifndef CHOIR_TUNE_STORAGE_WORKER_H
#define CHOIR_TUNE_STORAGE_WORKER_H

#include "tune/storage/stored_trial.h"

/* Returns this process's name as a JSON string, on the heap. unique: tells several studies that
 * one process has opened apart. */
char *choir__worker_name(const void *unique);

/* Between two segments of a trial, a pause stands in the place of its worker's name. Returns
 * the pause before segment `part` of the trial, JSON, on the heap. */
char *choir__worker_pause(int64_t part);
/* Returns whose segment a pause is before, or -1: it is a worker's name, or NULL. */
int64_t choir__worker_paused(const char *name);

/* Returns whether the worker of a running trial is dead. Trials of programs that send no
 * heartbeats and name no worker count as abandoned. */
bool choir__worker_is_dead(const choir__stored_trial *r, const char *self);

enum { CHOIR__BEAT_S = 10, CHOIR__SILENT_S = 60 }; /* heartbeats; the silence of the dead */

#endif
