/* How ranks have met: who is where, and what they can still say to each other before an engine
 * carries messages. */
#ifndef CHOIR_LAUNCH_MEET_MEETING_H
#define CHOIR_LAUNCH_MEET_MEETING_H

#include <choir/group.h>
#include <choir/store.h>

typedef struct choir__member {
    int32_t pid, node, local_rank, job_rank; /* job_rank: in the group that was init'ed */
    char host[64];                           /* name, for people */
    char machine[80]; /* the same text where shared memory and Unix sockets reach each other */
} choir__member;

typedef struct choir__meeting {
    int rank, world;
    double timeout_s;
    char job[128];          /* a secret that all ranks hold and no other job has */
    char launched[128];     /* the launcher's name of the job, no secret; empty: none */
    choir__member *members; /* (world); NULL where ranks met by job's name alone (shm) */
    choir_store *store;     /* NULL there, too; lives as long as the last group of the job */
    int nodes;
    const char *backend;        /* the engine to take if none is named; NULL: the best */
    const char *device;         /* for nccl: see choir_group_opts; NULL: cuda:LOCAL_RANK */
    choir_store_server *server; /* on rank 0, if it serves the store */
    bool consulted; /* set by engines whose ranks learn from the store who has failed */
} choir__meeting;

/* Meets by method (see choir_group_init) and fills in *meeting; free with choir__meeting_free.
 */
choir_status choir__meet(
    const char *method, const choir_group_opts *opts, choir__meeting *meeting);
void choir__meeting_free(choir__meeting *meeting);

/* Rank 0 waits until it is the only client of its store, but at most so many seconds. */
void choir__meeting_stay(const choir__meeting *meeting, double at_most_s);

/* After a failure, before free: rank 0 keeps a consulted store until the others have gone, or a
 * second. They have the sentence by then; else they would name rank 0, which goes, as well. */
void choir__meeting_linger(const choir__meeting *meeting);

#endif
