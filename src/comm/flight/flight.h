/* The flight recorder: the last collectives of every group of this process, always on.
 *
 * It is stored on the process's board (base/board/board.h), so other processes of the same user
 * can read it even while the process hangs or is stopped: `choir top`, supervisors on request,
 * and peers that report the last known activity of a silent rank. Each group's log has one
 * writer (the thread that runs the group's queue) and any number of readers, without locks: an
 * entry's number is written last.
 *
 *   flight.c        writing        flight_read.c   reading other processes
 *   flight_text.c   in words, as a table, as JSON */
#ifndef CHOIR_COMM_RECORDER_H
#define CHOIR_COMM_RECORDER_H

#include <stdio.h>
#include "base/board/board.h"
#include "comm/call.h"
#include "device/gauges.h"

enum { CHOIR__FLIGHT_ENTRIES = 64 }; /* collectives that a group remembers */

/* --- writing --- */

typedef struct choir__flight_log choir__flight_log; /* the log of one group */

/* Registers this process, with all its groups, in the job whose secret is `job`. generation:
 * generation of the ranks; 0: unknown. */
void choir__flight_job(const char *job, int rank, int world, int generation);

/* Stores the names of the machines on which the job's ranks run, at most
 * CHOIR__FLIGHT_MACHINES; they replace earlier names. */
enum { CHOIR__FLIGHT_MACHINES = 128 };
void choir__flight_machines(const char (*names)[64], int count);

/* Opens the log of a group. Returns NULL without room or a board: then nothing is recorded, and
 * the functions below accept NULL. name, rank, world: the group's name ("world", "world/0"),
 * this rank in it, and its size. */
choir__flight_log *choir__flight_log_open(
    const char *name, const char *backend, int rank, int world);
void choir__flight_log_close(choir__flight_log *log);

/* Returns the gauges in which the group's queue publishes its length; NULL if log is NULL. */
choir__queue_gauges *choir__flight_log_gauges(choir__flight_log *log);

/* Record the begin and the end of a call, from a task on the group's queue. A call that has
 * begun and not ended is the rank's current activity. Calls of a batch may overlap. */
void choir__flight_log_begin(choir__flight_log *log, const choir__stamp *stamp);
void choir__flight_log_end(
    choir__flight_log *log, const choir__stamp *stamp, choir_status status);

/* Notes that the group's calls are waited for by a thread of their own, not by the training. */
void choir__flight_log_aside(choir__flight_log *log);
/* Returns the seconds that this process has been in calls of its groups, except groups marked
 * by choir__flight_log_aside. In calls a rank waits for others, so the slowest rank of a job
 * has the smallest number. */
double choir__flight_waited(void);

/* --- reading: a process at one moment; all values read are checked, only text is not --- */

typedef struct choir__seen_call {
    uint64_t number; /* ordinal among this rank's calls in the group, from 1 */
    choir__stamp stamp;
    double issued, begun, ended; /* choir__now(); issued 0: unknown; ended 0: still running */
    choir_status status;         /* valid once the call has ended */
} choir__seen_call;

typedef struct choir__seen_group {
    char name[48], backend[16];
    int rank, world;
    uint64_t begun, ended; /* calls */
    double waited_s;       /* seconds in calls, including running ones */
    bool aside;            /* a thread of their own waits for the calls */
    uint64_t queued;       /* unfinished tasks: calls, batches, waits for devices */
    int count;
    choir__seen_call calls[CHOIR__FLIGHT_ENTRIES]; /* (count), oldest first */
} choir__seen_group;

typedef struct choir__seen_device {
    char name[16];
    uint64_t now, peak, reserved, limit; /* bytes: see choir_device_stats */
    uint64_t of_kind[CHOIR__MEMORY_KINDS];
    uint64_t queued;   /* tasks issued and not finished */
    uint64_t finished; /* tasks finished */
    double busy_s;     /* seconds in kernels since the process began */
} choir__seen_device;

typedef struct choir__seen {
    choir__board_who who;
    int pid;    /* the process's number as seen from here */
    char state; /* see choir__process_state */
    char command[128];
    double at; /* time of reading: choir__now() */
    int device_count, group_count, machine_count;
    choir__seen_device *devices;
    choir__seen_group *groups;
    char (*machines)[64]; /* (machine_count) machines of the job; none: this machine alone */
} choir__seen;

/* Reads the state of a process. Returns NULL if the process does not exist, belongs to another
 * user, or does not use Choir. */
choir__seen *choir__flight_read(int pid);
/* Interprets a board that was read at the time `at` of its machine's choir__now(). */
choir__seen *choir__flight_parse(const choir__board *board, int pid, double at);
void choir__seen_free(choir__seen *seen);

/* Returns the fraction of the time between two readings in which device i was busy. earlier
 * NULL: since the process began. */
double choir__seen_busy(const choir__seen *seen, const choir__seen *earlier, int i);

/* Returns the seconds that the process has been in calls of its groups, where it waits for
 * other ranks. */
double choir__seen_waited(const choir__seen *seen);

/* Returns a number that changes whenever the process has finished something: a task of a
 * device, a call of a group, or a part of its work on the host (choir__board_beat). *waits: the
 * process is in a call, where it waits for others. */
uint64_t choir__seen_progress(int pid, bool *waits);

/* Returns the group's running call, else the last one; NULL without any call. */
const choir__seen_call *choir__seen_current(const choir__seen_group *group);

/* --- in words --- */

/* Returns "all_reduce of 3 f32 (number 41)". All ranks of the group agree on the number. */
enum { CHOIR__CALL_TEXT = CHOIR__STAMP_TEXT + 24 };
const char *choir__call_text(const choir__stamp *stamp, char text[CHOIR__CALL_TEXT]);

/* Returns "stopped (SIGSTOP)", "stopped by a debugger" or "dead"; "" for a live process. */
const char *choir__state_text(char state);

/* Returns the last known activity of rank `rank` (-1: any) of the named group in another
 * process: "running all_reduce of 3 f32 (number 41) for 2.1 s", or "finished barrier (number
 * 40) 7 s ago", with its activity in other groups; "" if unknown. */
enum { CHOIR__SEEN_TEXT = 256 };
const char *choir__flight_log_last_seen(
    int pid, const char *name, int rank, char text[CHOIR__SEEN_TEXT]);

/* Returns a duration for people: "2.1 s", "7 min". */
const char *choir__duration_text(double seconds, char text[24]);

/* Print the process's devices and the last collectives of its groups as a table.
 * choir__flight_dump returns false, with the error noted, if there is nothing to read. */
bool choir__flight_dump(int pid, FILE *out);
void choir__seen_print(const choir__seen *seen, FILE *out);

/* Print a reading as JSON. choir__seen_json writes one object per process, in which the busy
 * fractions of devices are relative to the earlier reading (NULL: to the whole life of the
 * process). choir__seen_calls_json writes one object per call. */
void choir__seen_json(const choir__seen *seen, const choir__seen *earlier, FILE *out);
void choir__seen_calls_json(const choir__seen *seen, FILE *out);

#endif
