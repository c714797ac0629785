/* The devices of a pipeline over ranks.
 *
 * Every rank runs the same program over the same list of devices, "rank:0", "rank:1", ... Its
 * own one is the run's device under that name; the others are *away*: they have addresses and
 * no memory, and drop what is issued to them. So plain code, the walk back and the optimizer
 * run through on every rank, each kernel on the one that it belongs to, and nowhere is asked
 * whose turn it is. What connects the ranks are copies between devices:
 *
 *     home to rank:b     every rank has what is at home: a copy on rank b, nothing elsewhere
 *     rank:a to rank:b   a message
 *     rank:a to home     a broadcast
 *
 * The decision what to copy is made of devices alone, and these are alike everywhere. */
#ifndef CHOIR_PIPELINE_REMOTE_H
#define CHOIR_PIPELINE_REMOTE_H

#include "comm/group.h"
#include "tensor/tensor.h"

typedef struct choir__remote choir__remote;

/* Collective. It lives as long as the run; its groups until choir__remote_close. chunks: stages
 * a device, for words. */
choir_status choir__remote_open(
    choir_scope *run, choir_group *group, int chunks, choir__remote **remote);
/* With a status other than CHOIR_OK: tells the other ranks why. NULL is fine. */
void choir__remote_close(choir__remote *remote);

int choir__remote_count(const choir__remote *remote);
choir_device *choir__remote_device(choir__remote *remote, int rank);

/* The run's device goes on once everything that this rank was to send so far has been: before
 * a recorded step writes over it again. */
void choir__remote_join(choir__remote *remote);

int choir__remote_rank(const choir__remote *remote); /* this one */

typedef void choir__remote_on_abort(void *arg, choir_status status, const char *sentence);
/* Makes the pipeline one of several replicas, which on_abort ends together with it. */
void choir__remote_of_replica(
    choir__remote *remote, int replica, choir__remote_on_abort *on_abort, void *arg);
/* "stage 1 of replica 0 of the pipeline: " of a rank; replica < 0: there is one. */
void choir__remote_name(
    const choir__remote *remote, int rank, int replica, char *text, size_t room);

/* This rank has failed: all others end with the sentence. */
void choir__remote_abort(choir__remote *remote, choir_status status, const char *sentence);

/* Collective, waits: whether all ranks have the same number; an error says who has not, and
 * `what` it is. who: what ranks of the group are to the user. */
choir_status choir__remote_agree(choir__remote *remote, uint64_t mine, const char *what);
choir_status choir__ranks_have_same(
    choir_group *group, uint64_t mine, const char *who, const char *what);
/* Collective, waits: rank 0's bytes. */
choir_status choir__remote_share(choir__remote *remote, void *data, size_t bytes);

#endif
