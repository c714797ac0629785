/* All of this user's processes that use Choir, at one moment: what `choir top` and `choir
 * watch` show of them. The processes do nothing for it (base/board/board.h). */
#ifndef CHOIR_CLI_LOOKS_H
#define CHOIR_CLI_LOOKS_H

#include "comm/flight/flight.h"

/* The processes seen at one moment, sorted by job, then by rank. */
typedef struct choir__snapshot {
    choir__seen **seen;
    int count;
} choir__snapshot;

/* Reads the processes, all of them if pid_count is 0. */
choir__snapshot choir__snapshot_read(const int *pids, int pid_count);
void choir__snapshot_free(choir__snapshot *looks);
void choir__snapshot_add(choir__snapshot *looks, choir__seen *seen); /* takes it */
void choir__snapshot_move(
    choir__snapshot *to, choir__snapshot *from); /* moves all; `from` is empty then */
void choir__snapshot_sort(choir__snapshot *looks);

/* Returns the same process in an earlier round, or NULL if it was not there. */
const choir__seen *choir__snapshot_earlier(
    const choir__snapshot *before, const choir__seen *seen);

/* Describes the collective that the process has run the longest, else the last one it finished.
 */
void choir__snapshot_doing(const choir__seen *seen, char *text, size_t room);

/* The rank of a job, among those seen, for which the others wait. */
typedef struct choir__slow_rank {
    int rank;        /* -1: none is slow */
    double share;    /* share of the time that the others wait for this rank */
    double per_step; /* seconds per step; 0: unknown */
} choir__slow_rank;

/* Finds the rank that has waited least since the round before. `from` is the job's first
 * process. */
choir__slow_rank choir__snapshot_slow(
    const choir__snapshot *now, int from, const choir__snapshot *before);

#endif
