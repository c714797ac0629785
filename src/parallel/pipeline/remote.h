/* The devices of a pipeline over ranks.
 *
 * Every rank runs the same program over the same list of devices, "rank:0", "rank:1", ... The
 * rank's own entry is the run's device under that name. The others are *away*: they have
 * addresses but no memory, and they drop all work that is issued to them. So forward, backward
 * and the optimizer run through on every rank; each kernel takes effect on the rank to which it
 * belongs, and no code asks which rank's turn it is. Copies between devices connect the ranks:
 *
 *     home to rank:b     every rank has the data at home: a copy on rank b, nothing elsewhere
 *     rank:a to rank:b   a message
 *     rank:a to home     a broadcast
 *
 * Copies are decided from devices alone, and the devices are the same on every rank. */
#ifndef CHOIR_PIPELINE_REMOTE_H
#define CHOIR_PIPELINE_REMOTE_H

#include "comm/group.h"
#include "tensor/tensor.h"

typedef struct choir__remote choir__remote;

/* Opens the devices of a pipeline over ranks. `chunks`, the stages per device, is used in
 * messages. *remote lives as long as the run, its groups until choir__remote_close.
 * Collective. */
choir_status choir__remote_open(
    choir_scope *run, choir_group *group, int chunks, choir__remote **remote);
/* Frees the groups. remote may be NULL. */
void choir__remote_close(choir__remote *remote);

int choir__remote_count(const choir__remote *remote);
choir_device *choir__remote_device(choir__remote *remote, int rank);

/* Makes the run's device wait until all of this rank's sends so far are complete, so that a
 * recorded step may overwrite their sources. */
void choir__remote_join(choir__remote *remote);

int choir__remote_rank(const choir__remote *remote); /* this rank */

typedef void choir__remote_on_abort(void *arg, choir_status status, const char *sentence);
/* Makes the pipeline one of several replicas, which on_abort ends together with it. */
void choir__remote_of_replica(
    choir__remote *remote, int replica, choir__remote_on_abort *on_abort, void *arg);
/* Writes "stage 1 of replica 0 of the pipeline" for a rank. replica < 0: leaves the replica
 * out. */
void choir__remote_name(
    const choir__remote *remote, int rank, int replica, char *text, size_t room);

/* Reports that this rank has failed: all other ranks end with this sentence. */
void choir__remote_abort(choir__remote *remote, choir_status status, const char *sentence);

/* Check that all ranks have the same number. An error names a rank that differs from rank 0.
 * Words for its message: who, the users' name for the ranks ("ranks", "replicas"), and what,
 * the thing that differs. Collective; waits. */
choir_status choir__remote_agree(choir__remote *remote, uint64_t mine, const char *what);
choir_status choir__ranks_have_same(
    choir_group *group, uint64_t mine, const char *who, const char *what);
/* Adds up the numbers of all ranks; per entry at most one rank's is not zero. Collective;
 * waits. */
choir_status choir__remote_sum(choir__remote *remote, double *numbers, int64_t count);

#endif
