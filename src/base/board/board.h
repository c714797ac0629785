/* The board: the figures that a process shows to other processes of the same user, while it
 * works, hangs or is stopped.
 *
 * Each process has one memfd, which it maps and keeps open under the name "choir-board", so
 * that readers find it in /proc/PID/fd. Layers above allocate records on it and update their
 * figures there with plain stores: devices (device/gauges.h), groups (comm/flight/flight.h).
 * The board itself does not know the contents of a record.
 *
 *   | who: pid, rank, host, program | directory: kind, offset, bytes | record | record | ...
 *
 * A forked child gets its own board at the same address. Devices keep their records; records of
 * the parent's groups are hidden. If no memfd can be made, the process runs without a board.
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
    CHOIR__BOARD_MACHINES,
} choir__board_kind;

/* Returns a zeroed record, aligned to 64 bytes, or NULL if there is no room or no board. The
 * record becomes visible when its owner has filled it in and calls choir__board_show. */
void *choir__board_take(choir__board_kind kind, size_t bytes);
void choir__board_show(void *record);
void choir__board_give_back(void *record); /* NULL is fine */

/* Stores the job of this process on the board. `job` is equal on all ranks and is not
 * secret; generation: generation of the ranks; 0: unknown. */
void choir__board_job(uint64_t job, int rank, int world, int generation);

uint64_t choir__board_own_job(void); /* 0: none */

/* Notes that this process's code makes progress: a sample is read, a part of a file is written.
 * Long work on the host that neither a device nor a group would show calls it again and again,
 * so that it does not look like a rank that hangs. */
void choir__board_beat(void);

/* Notes that a step of a training begins. */
void choir__board_step(void);

/* --- reading --- */

typedef struct choir__board_who {
    uint64_t job; /* 0: none */
    int32_t pid, rank, world, generation;
    char host[64], program[64];
    double started; /* choir__now() */
    uint64_t beats, steps;
} choir__board_who;

/* Another process's board as it was at one moment. Only the shape of its contents has been
 * checked. choir__board_read returns NULL if the process has no board, belongs to another user,
 * or has ended. */
typedef struct choir__board choir__board;

choir__board *choir__board_read(int pid);
choir__board *choir__board_parse(
    const void *first, const void *second, size_t bytes); /* two reads of a board's bytes */
/* Stores where the two reads are, which another machine can parse, and returns their bytes; the
 * unused end of the board is left out. */
size_t choir__board_reads(const choir__board *board, const char *reads[2]);
void choir__board_free(choir__board *board);

choir__board_who choir__board_who_is(const choir__board *board); /* texts are printable */

/* Returns the index-th record of a kind, with at least `bytes` bytes, or NULL if there are no
 * more. */
const void *choir__board_record(
    const choir__board *board, choir__board_kind kind, int index, size_t bytes);

/* Returns true if both reads saw equal bytes here, so that no write was in progress. */
bool choir__board_settled(const choir__board *board, const void *at, size_t bytes);

/* Copies text of a foreign process for a terminal; characters other than printable ASCII become
 * '?'. */
void choir__board_text(char *to, size_t room, const char *from, size_t bytes);

/* Lists this user's processes that have a board, in ascending order, and returns their number.
 * The caller frees the list. */
int choir__board_processes(int **pids);

/* Returns the state as in /proc/PID/status: 'R', 'S', 'T' (stopped by a signal), 't' (by a
 * debugger), 'Z'; 0 if the process does not exist. */
char choir__process_state(int pid);

/* Writes the process's command line, cut to `room`; "" if it cannot be read. */
void choir__process_command(int pid, char *text, size_t room);

#endif
