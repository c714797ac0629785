/* Calls of a stored study, in addition to the calls of a study in memory (study_sync.c). */
#ifndef CHOIR_TUNE_KEPT_H
#define CHOIR_TUNE_KEPT_H

#include <choir/study.h>

typedef struct choir__study_sync choir__study_sync;
typedef struct choir__change choir__change;

/* Opens the storage of s, which has its directions, and its space unless it is to be looked at
 * only; then both come from the storage. Sets s->kept. Errors: see choir_study_open. */
choir_status choir__study_sync_open(choir_study *s, const choir_study_opts *opts);
/* Writes all queued changes; NULL is allowed. */
void choir__study_sync_close(choir__study_sync *kept);

/* Adopts the trials of other workers, and their ends. The study's lock is held. Errors:
 * argument (they are not of this space), I/O. */
choir_status choir__study_sync_refresh(choir_study *s);

/* Like choir__study_ask and choir__study_ready, among all workers. The lock is held, and
 * released while the storage works. */
choir_status choir__study_sync_ask(choir_study *s, choir_trial **trial);
bool choir__study_sync_ready(choir_study *s);

/* Returns how many of the points that were given no trial has: other workers may take a study's
 * last numbers first. */
int64_t choir__study_sync_points_left(const choir_study *s);

/* Queues the end of a trial or of its segment; choir__study_sync_wait waits, without the lock.
 */
choir__change *choir__study_sync_tell(choir__study_sync *kept, choir_trial *t);
choir_status choir__study_sync_wait(choir__study_sync *kept, choir__change *told);
/* Error: argument, a step that the storage cannot hold. */
choir_status choir__study_sync_check_step(const choir__study_sync *kept, int64_t step);
/* Queues a report. */
void choir__study_sync_report(
    choir__study_sync *kept, const choir_trial *t, int64_t step, double value);

/* While a server is away, calls wait, and return an error when fd becomes readable. Does
 * nothing for a study in memory. */
void choir__study_sync_stop_on(choir_study *s, int fd);

/* Queues an attribute of a trial; t NULL: of the study. */
void choir__study_sync_set_attribute(
    choir__study_sync *kept, const choir_trial *t, const char *key, const char *json);

#endif
