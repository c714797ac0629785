/* A claim: one job at a time has a folder, for as long as it lives. Two jobs in one folder
 * would replace each other's checkpoints and mix their records.
 *
 *     DIR/.in-use    host, machine, pid and name of the job, and a time that is renewed
 *
 * The file is locked (flock), which the kernel undoes when the last process of the job is gone.
 * On file systems of networks locks may be missing, or seen on one machine only: there the file
 * decides. Its job lives if its process does, where that is on this machine. Elsewhere it lives
 * while it renews the time; one that has not for 5 minutes, or whose clock is another one, is
 * watched for longer than one renewal before its folder is taken over. A job of this machine is
 * waited for some seconds: a start right after its end meets it while it leaves. */
#ifndef CHOIR_BASE_CLAIM_H
#define CHOIR_BASE_CLAIM_H

#include <stdbool.h>
#include <choir/status.h>

typedef struct choir__claim choir__claim;

typedef struct choir__claim_opts {
    /* The name that the processes of one job share, so that a process which replaces another
     * one gets its folder; NULL: the job has one process. */
    const char *job;
    bool shared;    /* processes of the job may have the folder side by side */
    int pid;        /* pid of the process that lives as long as the job; 0: this one */
    bool elsewhere; /* the job may continue on another machine when that process is gone */
    /* Tells the user of a holder that is gone. */
    void (*tell)(void *arg, const char *sentence);
    /* Is called on a thread of the claim's own if another job has taken the folder over, which
     * it does when this machine has stood still for minutes. */
    void (*lost)(void *arg, const char *sentence);
    void *arg;
    double ending_s, renew_s, gone_s, watch_s, settle_s; /* times; for tests */
} choir__claim_opts;

choir__claim_opts choir__claim_defaults(void);

/* Claims a folder that exists. *claim is NULL if nothing can be written there: whatever the job
 * writes will report that. Errors: state (another job has the folder, or another user's file
 * hides whether one has), I/O. */
choir_status choir__claim_take(
    const char *folder, const choir__claim_opts *opts, choir__claim **claim);

/* Gives the folder back; takes NULL. With `stays` the file stays, so that no other job has the
 * folder before another process of this one does. Does nothing in a forked process. */
void choir__claim_free(choir__claim *claim, bool stays);

#endif
