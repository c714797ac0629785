/* Ranks for which the others wait. Each rank knows which share of its time it spends in
 * collectives. The slowest rank spends the least there, and its cost is by how much others
 * spend more. The ranks compare these shares in a collective that ends each step anyway. */
#ifndef CHOIR_JOB_TRAINER_SLOW_H
#define CHOIR_JOB_TRAINER_SLOW_H

#include <stdbool.h>
#include <stdint.h>

typedef struct choir__job_slow {
    double waited, ended; /* waited: seconds until the end of the last step; ended: its time */
    double share, rate; /* share: recent fraction of time spent waiting; rate: steps per second
                           (0: unknown) */
    int rank;           /* the slowest, where it costs much; -1: none does */
    double cost_s, step_s; /* cost_s: seconds per step that the others wait for it; step_s:
                              seconds of a step */
    double since,
        told_at; /* since: when it became slow; told_at: when it was last named, 0: never */
} choir__job_slow;

enum { CHOIR__SLOW_WORDS = 2 };

void choir__job_slow_begin(choir__job_slow *slow);
/* Notes that a step of this rank has ended. */
void choir__job_slow_note(choir__job_slow *slow);
/* Writes what the ranks compare: the maximum of each word over the ranks is what
 * choir__job_slow_judge takes. */
void choir__job_slow_write(
    const choir__job_slow *slow, int rank, int64_t words[CHOIR__SLOW_WORDS]);
/* Finds the slowest rank. Returns whether it is to be named now: it has been the slowest for
 * `after` seconds, and was not named in the last ten times as many. */
bool choir__job_slow_judge(
    choir__job_slow *slow, const int64_t words[CHOIR__SLOW_WORDS], double after);

#endif
