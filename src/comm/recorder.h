/* The flight recorder: the last collectives of every group of this process, always on.
 *
 * It lies on the process's board (base/board.h), so anybody under the same user id can read it
 * even while the process hangs or is stopped: `choir top`, supervisors when they are asked, and
 * peers that want to say what a silent rank was last seen doing. One writer a group's log
 * (whoever runs the group's queue), any number of readers, no locks: an entry's number is
 * written last.
 *
 *   recorder.c        writing        recorder_read.c   reading other processes
 *   recorder_text.c   in words, as a table, as JSON */
#ifndef CHOIR_COMM_RECORDER_H
#define CHOIR_COMM_RECORDER_H

#include <stdio.h>
#include "base/board.h"
#include "comm/call.h"
#include "device/gauges.h"

enum { CHOIR__LOG_ENTRIES = 64 }; /* how many collectives a group remembers */

/* --- writing --- */

typedef struct choir__log choir__log; /* one group's part */

/* Puts this process into the job whose secret is `job`, for all its groups. */
void choir__recorder_job(const char *job, int rank, int world);

/* NULL when there is no room or no board: then nothing is recorded, and the calls below take
 * NULL. name is that of the group ("world", "world/0"); rank and world are its own. */
choir__log *choir__log_open(const char *name, const char *backend, int rank, int world);
void choir__log_close(choir__log *log);

/* Where the group's queue shows how many calls it holds; NULL of NULL. */
choir__queue_gauges *choir__log_gauges(choir__log *log);

/* From inside a task of that queue: begun and ended. A call that is begun and not ended is what
 * the rank is doing. Calls of a batch may run side by side. */
void choir__log_begin(choir__log *log, const choir__stamp *stamp);
void choir__log_end(choir__log *log, const choir__stamp *stamp, choir_status status);

/* --- reading: a process at one moment. Nothing in it is trusted: all checked, or text --- */

typedef struct choir__seen_call {
    uint64_t number; /* of this rank's calls in the group, from 1 */
    choir__stamp stamp;
    double issued, begun, ended; /* choir__now(); issued: 0, not known; ended: 0, it runs */
    choir_status status;         /* of one that has ended */
} choir__seen_call;

typedef struct choir__seen_group {
    char name[48], backend[16];
    int rank, world;
    uint64_t begun, ended; /* calls */
    uint64_t queued;       /* tasks that have not finished: calls, batches, waits for devices */
    int count;
    choir__seen_call calls[CHOIR__LOG_ENTRIES]; /* (count) the oldest first */
} choir__seen_group;

typedef struct choir__seen_device {
    char name[16];
    uint64_t now, peak, reserved, limit; /* bytes: see choir_device_stats */
    uint64_t queued;                     /* tasks issued and not finished */
    double busy_s;                       /* in kernels, until now */
} choir__seen_device;

typedef struct choir__seen {
    choir__board_who who;
    int pid;    /* as this process calls it */
    char state; /* see choir__process_state */
    char command[128];
    double at; /* when we looked: choir__now() */
    int device_count, group_count;
    choir__seen_device *devices;
    choir__seen_group *groups;
} choir__seen;

/* NULL: no such process, none of ours, or none that uses Choir. */
choir__seen *choir__recorder_read(int pid);
choir__seen *choir__recorder_parse(const choir__board *board, int pid);
void choir__seen_free(choir__seen *seen);

/* The share of the time between two looks that device i was busy; earlier: NULL, since the
 * process began. */
double choir__seen_busy(const choir__seen *seen, const choir__seen *earlier, int i);

/* The call that the group is at: the running one, else the last; NULL: there was none. */
const choir__seen_call *choir__seen_current(const choir__seen_group *group);

/* --- in words --- */

/* "all_reduce of 3 f32 (number 41)": the number by which all ranks of the group count. */
enum { CHOIR__CALL_TEXT = CHOIR__STAMP_TEXT + 24 };
const char *choir__call_text(const choir__stamp *stamp, char text[CHOIR__CALL_TEXT]);

/* "stopped (SIGSTOP)", "stopped by a debugger", "dead"; "" for one that lives. */
const char *choir__state_text(char state);

/* What rank `rank` (-1: whichever it is) of the group named so was last seen doing in another
 * process: "running all_reduce of 3 f32 (number 41) for 2.1 s", or "finished barrier (number
 * 40) 7 s ago", with what it does in other groups. "" if it can't be told. */
enum { CHOIR__SEEN_TEXT = 256 };
const char *choir__log_last_seen(
    int pid, const char *name, int rank, char text[CHOIR__SEEN_TEXT]);

/* "2.1 s", "7 min": a duration for people. */
const char *choir__duration_text(double seconds, char text[24]);

/* The process's devices and the last collectives of its groups, as a table. False, with the
 * error noted, where there is nothing to read. */
bool choir__recorder_dump(int pid, FILE *out);
void choir__seen_print(const choir__seen *seen, FILE *out);

/* The same as JSON: one object for the process, with the share of the time since the earlier
 * look (NULL: of all its time) that devices were busy; or one a call. */
void choir__seen_json(const choir__seen *seen, const choir__seen *earlier, FILE *out);
void choir__seen_calls_json(const choir__seen *seen, FILE *out);

#endif
