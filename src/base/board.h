/* The board: what a process shows of itself to others of the same user, be it at work, hung or
 * stopped.
 *
 * One memfd a process, which the process maps and keeps open under the name "choir-board", so
 * that it is found in /proc/PID/fd. Layers above take records on it and write their figures
 * there as they go, with plain stores: devices (device/gauges.h), groups (comm/recorder.h).
 * Nothing here knows what is in a record.
 *
 *   | who: pid, rank, host, program | directory: kind, offset, bytes | record | record | ...
 *
 * A fork gets a board of its own at the same address: devices keep their records, those of the
 * parent's groups are no longer shown. Without a memfd there is no board, and that is fine.
 *
 * Threads: any. */
#ifndef CHOIR_BOARD_H
#define CHOIR_BOARD_H

#include "base/base.h"

typedef enum choir__board_kind {
    CHOIR__BOARD_FREE,
    CHOIR__BOARD_DEVICE,
    CHOIR__BOARD_GROUP,
    CHOIR__BOARD_GONE, /* a forked child's copy of its parent's */
} choir__board_kind;

/* A zeroed record, aligned to 64 bytes; NULL if there is no room or no board. It is shown once
 * its owner has filled it in: choir__board_show. */
void *choir__board_take(choir__board_kind kind, size_t bytes);
void choir__board_show(void *record);
void choir__board_give_back(void *record); /* NULL is fine */

/* Which job this process is in: job is the same on all ranks, and no secret. */
void choir__board_job(uint64_t job, int rank, int world);

uint64_t choir__board_own_job(void); /* 0: none */

/* --- reading --- */

typedef struct choir__board_who {
    uint64_t job; /* 0: none */
    int32_t pid, rank, world;
    char host[64], program[64];
    double started; /* choir__now() */
} choir__board_who;

/* Another process's board as it was at one moment; whatever it says has been checked only for
 * its shape. NULL if the process has none, is another user's, or is gone. */
typedef struct choir__board choir__board;

choir__board *choir__board_read(int pid);
choir__board *choir__board_parse(
    const void *first, const void *second, size_t bytes); /* two looks at a board's bytes */
void choir__board_free(choir__board *board);

choir__board_who choir__board_who_is(const choir__board *board); /* texts are printable */

/* The index-th record of a kind, at least `bytes` long; NULL: there are no more. */
const void *choir__board_record(
    const choir__board *board, choir__board_kind kind, int index, size_t bytes);

/* Whether both looks saw these bytes alike: nobody was writing them. */
bool choir__board_settled(const choir__board *board, const void *at, size_t bytes);

/* Text of a foreign process, for a terminal: what isn't printable ASCII becomes '?'. */
void choir__board_text(char *to, size_t room, const char *from, size_t bytes);

/* This user's processes that have a board, in ascending order; the caller frees it. */
int choir__board_processes(int **pids);

/* As in /proc/PID/status: 'R', 'S', 'T' (stopped by a signal), 't' (by a debugger), 'Z'; 0 if
 * there is no such process. */
char choir__process_state(int pid);

/* The command it runs, as much of it as fits; "" if that can't be told. */
void choir__process_command(int pid, char *text, size_t room);

#endif
