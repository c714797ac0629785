/* Memberships: which ranks a job's group has, and how they differ from the group before. The
 * launcher that replaces ranks describes each new group in this form, and choir_elastic_change
 * (elastic.h) passes it to the program. Plain data. */
#ifndef CHOIR_MEMBERSHIP_H
#define CHOIR_MEMBERSHIP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A rank that has left the group. */
typedef struct choir_leaver {
    int rank, pid;   /* rank: number in the group that it left */
    const char *why; /* "was killed by SIGKILL (Killed)" */
} choir_leaver;

/** A change of the ranks. */
typedef struct choir_membership {
    uint64_t generation; /* number of the group, from 1 */
    int64_t step;        /* steps done when the new group began */
    int world;           /* ranks in the new group */
    int left_count, joined_count;
    const choir_leaver *left; /* (left_count) valid until the next change */
    const int *joined;        /* (joined_count) numbers of the new ranks */
    /* seconds from the first loss until all remaining ranks had stopped, and until the new
     * group had finished a step */
    double detected_s, resumed_s;
} choir_membership;

#ifdef __cplusplus
}
#endif
#endif
