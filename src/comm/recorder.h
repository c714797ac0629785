/* The flight recorder: the last collectives of every group of this process, always on.
 *
 * It lies in a memfd that stays open, so that anybody under the same user id can read it
 * through /proc/PID/fd even while the process hangs or is stopped: `choir top`, and peers that
 * want to say what a silent rank was last seen doing. One writer a group's log (whoever runs
 * the group's queue), any number of readers, no locks: each entry's seq is written last. */
#ifndef CHOIR_COMM_RECORDER_H
#define CHOIR_COMM_RECORDER_H

#include "comm/call.h"

typedef struct choir__log choir__log; /* one group's part */

/* NULL when there is no room or no memfd: then nothing is recorded, and the calls below take
 * NULL. job_rank and world are those of the job, name that of the group ("world", "world/0").
 */
choir__log *choir__log_open(const char *name, const char *backend, int rank, int world);
void choir__log_close(choir__log *log);

/* Queued; running; finished. A call that is begun and not ended is what the rank is doing. */
void choir__log_issue(choir__log *log, const choir__stamp *stamp);
void choir__log_begin(choir__log *log, const choir__stamp *stamp);
void choir__log_end(choir__log *log, const choir__stamp *stamp, choir_status status);

/* What another process's log of the same name was last doing, as
 * "running all_reduce of 3 f32 (number 41) for 2.1 s" or "finished barrier (number 40) 7 s
 * ago"; and "stopped" where the kernel says so. Empty if it can't be told. */
enum { CHOIR__SEEN_TEXT = 256 };
const char *choir__log_last_seen(int pid, const char *name, char text[CHOIR__SEEN_TEXT]);

#endif
