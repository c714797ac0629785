/* A meeting is the result of the ranks' first contact: where each rank runs, and a store
 * through which they can communicate before an engine carries messages. */
#ifndef CHOIR_LAUNCH_MEET_MEETING_H
#define CHOIR_LAUNCH_MEET_MEETING_H

#include <choir/group.h>
#include <choir/store.h>

typedef struct choir__member {
    int32_t pid, node, local_rank, job_rank; /* job_rank: in the group of choir_group_init */
    char host[64];                           /* name, for messages */
    /* equal on ranks that reach each other by shared memory and Unix sockets */
    char machine[80];
} choir__member;

typedef struct choir__meeting {
    int rank, world;
    double timeout_s;
    char job[128];          /* a secret that all ranks of this job hold, and no others */
    char launched[128];     /* the launcher's name of the job, not secret; empty: none */
    choir__member *members; /* (world); NULL if ranks met only by the job's name (shm) */
    choir_store *store;     /* NULL in that case, too; lives as long as the job's last group */
    int nodes;
    bool by_launcher; /* the engine joins the ranks (CHOIR__NEEDS_PLACE) unless one is named */
    const char *device;         /* for nccl: see choir_group_opts; NULL: cuda:LOCAL_RANK */
    choir_store_server *server; /* rank 0: the store that it serves, if any */
    bool consulted;             /* set by engines whose ranks look up failures in the store */
    bool (*stale)(void); /* true: ranks have left the job, so not all can come; NULL: never */
} choir__meeting;

/* The means with which the requested engine joins its ranks. */
typedef enum choir__meet_need {
    CHOIR__NEEDS_STORE, /* a store */
    CHOIR__NEEDS_NAME,  /* the job's name suffices where all ranks are on one machine */
    CHOIR__NEEDS_PLACE, /* rank and world: the engine joins its ranks by the launcher */
} choir__meet_need;

/* Meets by `method` (see choir_group_init) and fills in *meeting. Free with
 * choir__meeting_free. */
choir_status choir__meet(const char *method, const choir_group_opts *opts,
    choir__meet_need need, choir__meeting *meeting);
void choir__meeting_free(choir__meeting *meeting);

/* Rank 0 waits, for at most at_most_s seconds, until it is the only client of its store. */
void choir__meeting_stay(const choir__meeting *meeting, double at_most_s);

/* Called after a failure, before choir__meeting_free: rank 0 keeps a consulted store until the
 * others have disconnected, for at most a second. By then they have read the failure's
 * sentence; otherwise they would also report rank 0, which leaves, as lost. */
void choir__meeting_linger(const choir__meeting *meeting);

#endif
